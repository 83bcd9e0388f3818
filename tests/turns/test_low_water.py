"""Dead rows of the ready queue, which an old snapshot keeps, are not read again by every claim."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.support.big_tables import plan_of, scale
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from workers.postgres.database import Database
from workers.turns import store
from workers.turns.low_water import (
    MARGIN,
    MOST_GROUPS,
    MOST_REST_AMONG_MANY_SECONDS,
    MOST_REST_SECONDS,
    REST,
    SLOW_SECONDS,
    LowWater,
)
from workers.turns.policy import ReadyLane

NOW = datetime(2026, 5, 1, tzinfo=UTC)
GROUP = ("echo", "lab/a")
LANE = ReadyLane(1, *GROUP)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.rule("EN-44")
def test_quick_walks_are_made_for_every_claim() -> None:
    known = LowWater()
    known.walked(SLOW_SECONDS / 2, [(LANE, NOW)])

    assert known.groups(["echo"], [], []) == []
    assert known.walk_is_due()


@pytest.mark.rule("EN-44")
def test_slow_walks_rest_and_known_groups_are_asked_from_their_marks() -> None:
    clock = Clock()
    known = LowWater(clock)
    known.walked(2 * SLOW_SECONDS, [(LANE, NOW)])

    assert known.groups(["echo"], [], []) == [GROUP]
    assert known.marks([GROUP]) == [NOW - MARGIN]
    assert not known.walk_is_due()
    clock.now += 2 * SLOW_SECONDS * REST + 0.001
    assert known.walk_is_due()

    later = NOW + timedelta(minutes=1)
    known.asked([(GROUP, None, later)])
    assert known.marks([GROUP]) == [later - MARGIN]
    assert known.groups(["other"], [], []) == []
    assert known.groups(["echo"], ["lab/a"], []) == []
    assert known.groups(["echo"], [], ["lab"]) == []


@pytest.mark.rule("EN-44")
def test_a_very_slow_walk_rests_for_seconds_or_less_while_there_are_more_groups_than_can_be_known() -> None:
    clock = Clock()
    known = LowWater(clock)
    known.walked(1.0, [(LANE, NOW)])
    clock.now += MOST_REST_SECONDS - 0.1
    assert not known.walk_is_due()
    clock.now += 0.1
    assert known.walk_is_due()

    for number in range(MOST_GROUPS):
        known.met(("echo", f"lab/{number}"), NOW + timedelta(hours=1), NOW)
    assert len(known.known) == MOST_GROUPS
    assert known.marks([("echo", "lab/9")]) == [NOW - MARGIN], "not later than the present"
    known.walked(1.0, [])
    clock.now += MOST_REST_AMONG_MANY_SECONDS
    assert known.walk_is_due()


@contextmanager
def an_old_snapshot(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from runs")
        yield


async def bloat(desk: Desk, rows: int) -> None:
    """Dead rows in the queue, as so many turns leave them."""
    await desk.database.execute(
        "insert into ready (lane_id, agent, account, due_at)"
        " select -n, 'echo', 'lab/a', parley_now() - interval '10 minutes' + n * interval '1 ms'"
        " from generate_series(1, $1::integer) n",
        rows,
    )
    await desk.database.execute("delete from ready where lane_id < 0")


@pytest.mark.rule("EN-44")
async def test_a_new_account_at_once_and_a_late_commit_by_the_walk_are_found_behind_dead_rows(
    database_url: str,
) -> None:
    async with a_desk(database_url, an_agent("echo", conversation=True)) as desk:
        await desk.admit("echo", an_event())
        await desk.work()
        with an_old_snapshot(database_url):
            await bloat(desk, int(120_000 * max(scale(), 0.2)))
            known = desk.claims._offers._low_water
            await desk.admit("echo", an_event())
            await desk.work()
            known.walked(1.0, [(LANE, datetime.now(UTC))])
            late, other = an_event(), an_event(account="b")
            [late_run] = await desk.admit("echo", late)
            await desk.database.execute("update ready set due_at = parley_now() - interval '5 minutes'")
            [other_run] = await desk.admit("echo", other)
            await desk.turn_once()
            assert await desk.status(other_run) == "succeeded"
            assert await desk.due() == 1, "the walk rests"

            known._walked_at -= 60
            await desk.work()

            assert await desk.status(late_run) == "succeeded"


@pytest.mark.rule("EN-44")
async def test_known_groups_are_asked_without_reading_what_is_dead(database_url: str) -> None:
    rows = int(120_000 * max(scale(), 0.2))
    async with a_desk(database_url, an_agent("echo", conversation=True)) as desk:
        with an_old_snapshot(database_url):
            await bloat(desk, rows)
            await desk.admit("echo", *(an_event() for _ in range(10)))
            database = await Database.open(database_url, max_size=1)
            try:
                async with database.transaction() as tx:
                    mark = [await tx.fetchval("select parley_now() - interval '2 s'")]
                    arguments = ["echo"], ["lab/a"], mark, 64
                    plan = await plan_of(tx, store.FIND_READY_IN, *arguments, generic=True)
                    started = time.perf_counter()
                    found = await store.find_ready_in(tx, [GROUP], mark, 64)
                    took = time.perf_counter() - started
            finally:
                await database.close()

    buffers = max(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in plan.nodes)
    assert len(found) == 10
    assert buffers < 50, buffers
    assert took < 0.1


@pytest.mark.rule("EN-44")
async def test_new_groups_are_looked_for_without_reading_what_is_dead_of_known_ones(
    database_url: str,
) -> None:
    rows = int(120_000 * max(scale(), 0.2))
    async with a_desk(database_url, an_agent("echo", conversation=True)) as desk:
        with an_old_snapshot(database_url):
            await bloat(desk, rows)
            accounts = ["A", "a", "a-1", "b", "é"]
            await desk.admit("echo", *(an_event(account=account) for account in accounts))
            known = [GROUP]
            database = await Database.open(database_url, max_size=1)
            try:
                async with database.transaction() as tx:
                    while found := await store.find_new_groups(tx, ["echo", "other"], known):
                        known += [(row["agent"], row["account"]) for row in found]
                    names, found_in = [agent for agent, _ in known], [account for _, account in known]
                    plan = await plan_of(
                        tx, store.FIND_NEW_GROUPS, names, found_in, ["echo", "other"], generic=True
                    )
            finally:
                await database.close()

    buffers = max(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in plan.nodes)
    assert sorted(known) == sorted(("echo", f"lab/{account}") for account in accounts)
    assert buffers < 100, buffers
