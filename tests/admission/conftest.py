"""A database with an admission on it, and ways to look at what was admitted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from schemas.event import Event
from tests.support.events import candidates_of
from tests.support.waiting import eventually
from workers.admission import store
from workers.admission.policy import Candidate, Outcome
from workers.admission.service import Admission
from workers.agents.agent import Agent
from workers.postgres.database import Connection, Database


@dataclass
class Desk:
    """What a test needs to admit and to look."""

    url: str
    database: Database
    admission: Admission

    async def admit(self, agent: Agent, *events: Event) -> list[Outcome | Exception]:
        """Admit these events for `agent` as one batch."""
        return await self.admission.admit(candidates_of(agent, events))

    def candidates(self, agent: Agent, *events: Event) -> list[Candidate]:
        return candidates_of(agent, events)

    def admission_with(self, **options: Any) -> Admission:
        return Admission(self.database, **options)

    async def runs(self) -> Sequence[Mapping[str, Any]]:
        """All runs by lane and position."""
        rows = await self.database.fetch("select * from runs order by lane_id, position")
        return [dict(row) for row in rows]

    async def runs_in_order_of(self, events: Sequence[Event]) -> Sequence[Mapping[str, Any]]:
        runs = {run["event_id"]: run for run in await self.runs()}
        return [runs[event.event_id] for event in events]

    async def kinds_of_lanes(self) -> dict[str, int]:
        rows = await self.database.fetch("select kind, count(*) from lanes group by kind")
        return {row[0]: row[1] for row in rows}

    async def expire(self, at_most: int = 1000) -> int:
        """Remove expired reservations, as a pruning does; returns how many."""
        async with self.database.transaction() as tx:
            return await store.delete_expired_reservations(tx, at_most)

    async def count(self, table: str) -> int:
        return int((await self.database.fetch(f"select count(*) from {table}"))[0][0])

    async def counts(self) -> tuple[int, int]:
        """Reservations and runs."""
        return await self.count("reservations"), await self.count("runs")

    async def deadlocks(self) -> int:
        """How often the server had to break a deadlock in this database."""
        rows = await self.database.fetch(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        return int(rows[0][0])

    async def until_somebody_waits(self) -> None:
        """Until a connection of this database waits for a lock."""

        async def waiting() -> bool:
            rows = await self.database.fetch(
                "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            return len(rows) > 0

        await eventually("somebody waits for a lock", waiting)

    @asynccontextmanager
    async def short_of_patience(self, lock_timeout: timedelta) -> AsyncIterator[tuple[Admission, list[str]]]:
        """An admission whose statements wait so long for a lock, and the SQLSTATEs that it met."""
        met: list[str] = []
        database = await Database.open(self.url, max_size=2, lock_timeout=lock_timeout)
        admission = Admission(database)
        admit_in = admission.admit_in

        async def noting(tx: Connection, candidates: Sequence[Candidate]) -> list[Outcome]:
            try:
                return await admit_in(tx, candidates)
            except asyncpg.PostgresError as error:
                met.append(error.sqlstate or "")
                raise

        admission.admit_in = noting  # type: ignore[method-assign]  # only to see what it met
        try:
            yield admission, met
        finally:
            await database.close()

    @asynccontextmanager
    async def holding_before_commit(self, agent: Agent, *events: Event) -> AsyncIterator[asyncio.Event]:
        """An admission that has done all its statements and commits when the event is set."""
        arrived, may_commit = asyncio.Event(), asyncio.Event()

        async def admit() -> None:
            async with self.database.transaction() as tx:
                await self.admission.admit_in(tx, candidates_of(agent, events))
                arrived.set()
                await may_commit.wait()

        task = asyncio.create_task(admit())
        await eventually("the statements are done", arrived.is_set)
        try:
            yield may_commit
        finally:
            may_commit.set()
            await task


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    """An empty database and an admission."""
    database = await Database.open(database_url, max_size=8)
    yield Desk(database_url, database, Admission(database))
    await database.close()


@pytest.fixture
def before_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`before_reading(act)`: do `act` once, between the insert of reservations and the reading of those in its way."""
    read = store.read_reservations

    def arrange(act: Callable[[], Any]) -> None:
        async def read_later(*arguments: Any) -> Any:
            monkeypatch.setattr(store, "read_reservations", read)
            await act()
            return await read(*arguments)

        monkeypatch.setattr(store, "read_reservations", read_later)

    return arrange
