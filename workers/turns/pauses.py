"""What operators have paused, as every worker knows it within a second, after a restart as well.

The claim asks nobody: this reads the table beside it, on a hint and by polling. A pause that a worker has not heard of
yet lets turns begin that were claimed until then; a resume that it has not heard of delays some by as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog

from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.postgres.hints import Wake
from workers.postgres.sql import load
from workers.turns.policy import NOTHING_PAUSED, Paused

READ_PAUSES = load(__package__, "read_pauses")
REFRESH_EVERY: Final = timedelta(seconds=1)

log = structlog.get_logger(__name__)


class Pauses:
    """Keeps `now` up to date; `changed` is called after each change of it."""

    def __init__(self, database: Database, wake: Wake, changed: Callable[[], None] = lambda: None) -> None:
        self.now: Paused = NOTHING_PAUSED
        self._database = database
        self._wake = wake
        self._changed = changed
        self._known = asyncio.Event()

    async def known(self) -> None:
        """Return once the pauses were read for the first time: nothing may be claimed before."""
        await self._known.wait()

    async def refresh(self) -> None:
        """Read them now; raises database errors and leaves what was known."""
        rows = await self._database.fetch(READ_PAUSES)
        found = Paused(
            frozenset(row["name"] for row in rows if row["kind"] == "agent"),
            frozenset(row["name"] for row in rows if row["kind"] == "channel"),
            frozenset(f"{row['name']}/{row['account']}" for row in rows if row["kind"] == "account"),
        )
        self._known.set()
        if found != self.now:
            log.info(
                "pauses.changed",
                agents=sorted(found.agents),
                channels=sorted(found.channels),
                accounts=sorted(found.accounts),
            )
            self.now = found
            self._changed()

    async def run(self) -> None:
        """Refresh until cancelled; an outage leaves what was known."""
        while True:
            try:
                await self.refresh()
            except Exception as error:
                if not is_retryable(error):
                    raise
                log.warning("pauses.waiting", error=type(error).__name__)
            await self._wake.wait(REFRESH_EVERY)
