"""A process that stops in the middle of a statement keeps nobody waiting: the others end its database session."""

import asyncio
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from workers.postgres.database import Database
from workers.turns.stopped import end_stopped_clients

REPOSITORY = Path(__file__).parents[2]
SOON = timedelta(milliseconds=300)
STOPS_BETWEEN_PREPARING_AND_RUNNING = """
import asyncio, os, signal, sys
from workers.postgres.database import Database

async def main():
    db = await Database.open(sys.argv[1], max_size=1)
    async with db.transaction() as tx:
        await tx.execute("select from lanes for update")
        await tx.prepare("select count(*) from lanes")
        os.kill(os.getpid(), signal.SIGSTOP)
        await tx.fetch("select count(*) from lanes")

asyncio.run(main())
"""
STATE = "select state, wait_event from pg_stat_activity where application_name = 'parley' and xact_start is not null"


@pytest.mark.rule("EN-19")
async def test_a_process_that_stops_in_mid_statement_blocks_nobody_for_longer(database_url: str) -> None:
    database = await Database.open(database_url, max_size=1, application_name="parley-other")
    await database.execute("insert into lanes (key, kind) values ('k', 'run')")
    holder = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STOPS_BETWEEN_PREPARING_AND_RUNNING,
        database_url,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    try:

        async def is_stuck() -> bool:
            rows = await database.fetch(STATE + " and datname = current_database()")
            return [tuple(row) for row in rows] == [("active", "ClientRead")]

        await eventually("it stopped", is_stuck)
        assert await end_stopped_clients(database, timedelta(minutes=1)) == 0
        assert await database.fetch("select from lanes for update skip locked") == []

        await asyncio.sleep(SOON.total_seconds())
        assert await end_stopped_clients(database, SOON) == 1

        async def lock_is_free() -> bool:
            return len(await database.fetch("select from lanes for update skip locked")) == 1

        await eventually("the lock comes free", lock_is_free, timedelta(seconds=5))
        holder.send_signal(signal.SIGCONT)
        _, told = await holder.communicate()
        assert b"AdminShutdown" in told or b"ConnectionDoesNotExist" in told, told
    finally:
        if holder.returncode is None:
            holder.kill()
            await holder.wait()
        await database.close()


async def test_a_transaction_between_two_statements_is_left_to_the_server(database_url: str) -> None:
    database = await Database.open(database_url, max_size=2)
    async with database.transaction() as tx:
        await tx.execute("select 1")
        await asyncio.sleep(0.05)

        assert await end_stopped_clients(database, timedelta(milliseconds=10)) == 0
    await database.close()
