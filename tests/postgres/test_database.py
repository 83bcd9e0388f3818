"""A pool that loses no connection, whose transactions stay short whatever happens to their process."""

import asyncio
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from tests.support.waiting import eventually
from workers.postgres.database import Database

REPOSITORY = Path(__file__).parents[2]
HOLD = """
import asyncio, sys
from datetime import timedelta
from workers.postgres.database import Database

async def main():
    db = await Database.open(sys.argv[1], idle_in_transaction_timeout=timedelta(milliseconds=700))
    async with db.transaction() as tx:
        await tx.execute("select from lanes for update")
        print("holding", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


async def test_a_transaction_commits_at_its_end_and_rolls_back_on_any_exception(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("insert into lanes (key, kind) values ('kept', 'run')")
    with suppress(ZeroDivisionError):
        async with database.transaction() as tx:
            await tx.execute("insert into lanes (key, kind) values ('dropped', 'run')")
            raise ZeroDivisionError

    assert [bytes(row[0]) for row in await database.fetch("select key from lanes")] == [b"kept"]


@pytest.mark.rule("EN-19")
async def test_every_connection_bounds_idle_transactions_lock_waits_and_statements(
    database: Database,
) -> None:
    settings = {
        name: (await database.fetch(f"show {name}"))[0][0]
        for name in ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout", "TimeZone")
    }

    assert settings == {
        "idle_in_transaction_session_timeout": "5s",
        "lock_timeout": "5s",
        "statement_timeout": "30s",
        "TimeZone": "UTC",
    }


@pytest.mark.rule("EN-19")
async def test_a_process_stopped_in_mid_transaction_blocks_nobody_for_longer(
    database: Database, database_url: str
) -> None:
    """SIGSTOP: its kernel keeps the connection open, and only the server's own time-out ends the transaction."""
    await database.execute("insert into lanes (key, kind) values ('k', 'run')")
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, database_url, stdout=subprocess.PIPE, cwd=REPOSITORY
    )
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"holding\n"
        holder.send_signal(signal.SIGSTOP)

        async def lock_is_free() -> bool:
            rows = await database.fetch("select from lanes for update skip locked")
            return len(rows) == 1

        await eventually("the lock comes free", lock_is_free, timedelta(seconds=5))
    finally:
        holder.kill()
        await holder.wait()


@pytest.mark.rule("EN-42")
async def test_a_pool_whose_callers_time_out_leaks_no_connection(database_url: str) -> None:
    database = await Database.open(database_url, max_size=2, acquire_timeout=timedelta(milliseconds=20))
    async with database.acquire(), database.acquire():
        refused = await asyncio.gather(
            *[database.fetch("select 1") for _ in range(50)], return_exceptions=True
        )

    assert [type(each) for each in refused] == [TimeoutError] * 50
    assert database.in_use == 0
    answers = await asyncio.gather(*[database.fetch("select 1 as one") for _ in range(2)])
    assert [rows[0]["one"] for rows in answers] == [1, 1]
    await database.close()


@pytest.mark.rule("EN-42")
async def test_a_pool_whose_callers_are_cancelled_anywhere_leaks_no_connection(database_url: str) -> None:
    database = await Database.open(database_url, max_size=3)

    async def work() -> None:
        async with database.transaction() as tx:
            await tx.execute("insert into audit (actor, act, subject) values ('a', 'b', 'c')")
            await tx.fetch("select pg_sleep(0.002)")

    for pause in range(60):
        tasks = [asyncio.create_task(work()) for _ in range(8)]
        await asyncio.sleep(pause / 4000)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    await eventually("all connections are back", lambda: database.in_use == 0)
    answers = await asyncio.gather(*[database.fetch("select 1") for _ in range(9)])
    assert len(answers) == 9
    assert database.size <= 3
    await database.close()


@pytest.mark.rule("EN-42")
async def test_connections_that_the_server_ended_are_made_again(database: Database) -> None:
    await database.fetch("select 1")
    with pytest.raises(asyncpg.PostgresError):
        await database.fetch("select pg_terminate_backend(pg_backend_pid())")

    assert (await database.fetch("select 1"))[0][0] == 1
    assert database.in_use == 0


async def test_closing_does_not_wait_for_ever(database_url: str) -> None:
    database = await Database.open(database_url, max_size=1)
    async with database.acquire() as connection:
        stuck = asyncio.create_task(connection.fetch("select pg_sleep(20)"))
        await asyncio.sleep(0)

        await asyncio.wait_for(database.close(within=timedelta(milliseconds=100)), 5)

        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
            await stuck
