"""Facts of a running installation, read in transactions that cannot change it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from workers.postgres.database import Connection, Database
from workers.postgres.sql import load

SET_READ_ONLY = load(__package__, "set_read_only")
READ_SERVER = load(__package__, "read_server")
READ_OPEN_RUNS = load(__package__, "read_open_runs")
READ_SESSIONS = load(__package__, "read_sessions")
READ_WORK = load(__package__, "read_work")


@dataclass(frozen=True, slots=True)
class Server:
    """The database server, with its clock at the moment of asking."""

    version: str
    version_number: int
    clock: datetime
    in_recovery: bool
    has_vector: bool


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """Open runs of one agent under one memory key."""

    agent: str
    memory_key: str | None
    runs: int
    oldest: timedelta


@dataclass(frozen=True, slots=True)
class Work:
    """What waits and what runs; an age is None where nothing waits."""

    lanes_due: int
    oldest_due: timedelta | None
    turns_running: int
    deliveries_open: int
    oldest_delivery: timedelta | None


@asynccontextmanager
async def looking(database: Database) -> AsyncIterator[Connection]:
    """A transaction that the server itself keeps from writing."""
    async with database.transaction() as tx:
        await tx.execute(SET_READ_ONLY)
        yield tx


async def read_server(tx: Connection) -> Server:
    """Works on a database without any table of ours."""
    row = await tx.fetchrow(READ_SERVER)
    assert row is not None, "a query without a from clause gives one row"
    return Server(*row)


async def read_open_runs(tx: Connection) -> list[OpenRuns]:
    return [OpenRuns(*row) for row in await tx.fetch(READ_OPEN_RUNS)]


async def read_sessions(tx: Connection) -> dict[str, int]:
    """How many worker sessions are alive, lapsed, dead and ended."""
    return {row["state"]: row["sessions"] for row in await tx.fetch(READ_SESSIONS)}


async def read_work(tx: Connection) -> Work:
    row = await tx.fetchrow(READ_WORK)
    assert row is not None, "a query without a from clause gives one row"
    return Work(*row)
