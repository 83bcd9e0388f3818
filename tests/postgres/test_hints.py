"""Hints wake other processes soon, are lost without harm, and cost one NOTIFY a round."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import asyncpg
import pytest

from tests.support.waiting import eventually
from workers.postgres.database import Database
from workers.postgres.hints import Hints, Wake

LONG = timedelta(seconds=30)


@asynccontextmanager
async def running(*hints: Hints) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.run(reconnect_after=timedelta(milliseconds=20))) for each in hints]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def listeners(database: Database) -> list[int]:
    rows = await database.fetch(
        "select pid from pg_stat_activity where datname = current_database() and application_name = 'parley-hints'"
        " and (query ilike 'listen%' or query ilike '%pg_notify%')"
    )
    return [row["pid"] for row in rows]


def connected(database: Database, number: int) -> Callable[[], object]:
    async def holds() -> bool:
        return len(await listeners(database)) == number

    return holds


@pytest.mark.rule("EN-43")
async def test_a_hint_wakes_waiters_of_its_name_here_and_in_another_process(
    database_url: str, database: Database
) -> None:
    ours, theirs = Hints(database_url), Hints(database_url)
    here, there, other = ours.waiter("ready"), theirs.waiter("ready"), theirs.waiter("deliveries")
    async with running(ours, theirs):
        await eventually("both listen", connected(database, 2))

        ours.hint("ready")

        await asyncio.wait_for(asyncio.gather(here.wait(LONG), there.wait(LONG)), 5)
        assert not other._event.is_set()


@pytest.mark.rule("EN-43")
async def test_many_hints_of_one_round_are_one_notify(database_url: str, database: Database) -> None:
    hints = Hints(database_url)
    heard: list[str] = []
    listener = await asyncpg.connect(database_url)
    await listener.add_listener(Hints.CHANNEL, lambda *arguments: heard.append(str(arguments[3])))
    async with running(hints):
        await eventually("it listens", connected(database, 1))
        for _ in range(1000):
            hints.hint("ready")
            hints.hint("deliveries")

        await eventually("the hints arrive", lambda: heard)

    await listener.close()
    assert heard == ["deliveries,ready"]


@pytest.mark.rule("EN-43")
async def test_a_lost_connection_is_made_again_and_hints_go_on(database_url: str, database: Database) -> None:
    ours, theirs = Hints(database_url), Hints(database_url)
    wake = theirs.waiter("ready")
    async with running(ours, theirs):
        await eventually("both listen", connected(database, 2))
        before = await listeners(database)
        await database.execute("select pg_terminate_backend(pid) from unnest($1::integer[]) pid", before)
        ours.hint("ready")

        async def made_again() -> bool:
            now = await listeners(database)
            return len(now) == 2 and not set(now) & set(before)

        await eventually("both listen again", made_again)
        wake._event.clear()
        ours.hint("ready")

        await asyncio.wait_for(wake.wait(LONG), 5)


@pytest.mark.rule("EN-43")
async def test_without_any_hint_a_waiter_looks_by_itself_and_not_at_the_same_moment_as_the_others() -> None:
    waits = []
    for _ in range(40):
        begun = time.monotonic()
        await Wake().wait(timedelta(milliseconds=20))
        waits.append(time.monotonic() - begun)

    assert min(waits) >= 0.009
    assert max(waits) < 0.25
    assert len({round(wait, 4) for wait in waits}) > 5


@pytest.mark.rule("EN-43")
async def test_a_hint_that_came_while_nobody_waited_is_not_lost_and_counts_once() -> None:
    wake = Wake()
    wake.set()
    wake.set()

    await asyncio.wait_for(wake.wait(LONG), 1)

    assert not wake._event.is_set()


async def test_hints_without_a_database_stay_in_the_process() -> None:
    hints = Hints()
    wake = hints.waiter("ready")

    hints.hint("ready")

    await asyncio.wait_for(wake.wait(LONG), 1)
    await hints.run()
