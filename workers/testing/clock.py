"""The clock that the engine's SQL reads, in the hands of a test: it moves ahead when told to, and can stand still."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from uuid import UUID

from workers.postgres.database import Database
from workers.postgres.sql import load

ADVANCE_CLOCK = load(__package__, "advance_clock")
STOP_CLOCK = load(__package__, "stop_clock")
READ_CLOCK = load(__package__, "read_clock")


class TestClock:
    """Retries, retention, time-outs of the database and leases follow it; a living worker keeps its lease."""

    __test__ = False

    def __init__(self, database: Database, crashed: Callable[[], Collection[UUID]]) -> None:
        self._database = database
        self._crashed = crashed

    async def now(self) -> datetime:
        """The time it shows."""
        row = await self._database.fetchrow(READ_CLOCK)
        assert row is not None
        moment: datetime = row[0]
        return moment

    async def advance(self, by: timedelta) -> None:
        """Let `by` pass at once."""
        await self._database.execute(ADVANCE_CLOCK, by, list(self._crashed()))

    async def stop(self) -> None:
        """Stand still from now on, but for `advance`: what is due later than now happens only then."""
        await self._database.execute(STOP_CLOCK)
