"""The sweeper: prunes round after round, one process among all at a time, a small batch and a rest in turns.

A lease in the database says whose round it is; a process that dies in it is followed by another when the
lease runs out. Batches need no fence: two sweepers at once remove the same rows once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog

from schemas.run import new_uuid7
from workers.admission import store as admission
from workers.memory.limits import Limits
from workers.operations.errors import ActRefused
from workers.operations.pruning import BATCH, MEMORY, NO_BOUND, Batch, Task, tasks
from workers.operations.retention import Retention
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.postgres.sql import load

TAKE_LEASE = load(__package__, "take_lease")
END_LEASE = load(__package__, "end_lease")

LEASE_NAME: Final = "sweeper"
LEASE_FOR: Final = timedelta(seconds=60)
ROUND_EVERY: Final = timedelta(minutes=1)
REST: Final = 2.0
"""A batch is followed by a rest of so many times its own duration."""

log = structlog.get_logger(__name__)


class _DryRun(Exception):
    """Rolls a batch back."""


class _LeaseLost(Exception):
    """Another process sweeps now."""


class Sweeper:
    """`run()` until cancelled; `prune()` for one round of everything. `limits` are those of the app's memory."""

    def __init__(
        self,
        database: Database,
        retention: Retention,
        *,
        limits: Limits | None = None,
        pruned: Callable[[str, int], None] = lambda table, rows: None,
        batch: int = BATCH,
        rest: float = REST,
    ) -> None:
        self._database = database
        self._retention = retention
        self._limits = limits
        self._batch = batch
        self._tasks = tasks(retention, batch, limits=limits)
        self._pruned = pruned
        self._rest = rest
        self._holder: UUID = new_uuid7()
        self._done_at: dict[str, float] = {}

    async def run(self, every: timedelta = ROUND_EVERY) -> None:
        """A round of what is due whenever the lease can be had; an outage waits for the next."""
        while True:
            try:
                if await self._take():
                    removed = await self._round([task for task in self._tasks if self._is_due(task)])
                    if any(removed.values()):
                        log.info("sweeper.pruned", **{table: rows for table, rows in removed.items() if rows})
            except _LeaseLost:
                log.warning("sweeper.lease_lost")
            except Exception as error:
                if not is_retryable(error):
                    raise
                log.warning("sweeper.waiting", error=type(error).__name__)
            await asyncio.sleep(every.total_seconds())

    async def prune(self, *, dry_run: bool = False) -> dict[str, int]:
        """One round of everything, now: how many rows went of each table, or would go.

        Raises ActRefused while another sweeps, and what a batch failed with; that batch removed nothing. A dry run
        counts by the same statements in transactions that are rolled back; what one task would free for the next
        is not in it.
        """
        return await self._prune([task.name for task in self._tasks], dry_run)

    async def prune_memory(self, *, dry_run: bool = False) -> dict[str, int]:
        """As `prune`, of conversation memory alone: notes, receipts, items, and what is left of conversations."""
        return await self._prune(MEMORY, dry_run)

    async def _prune(self, names: Collection[str], dry_run: bool) -> dict[str, int]:
        if dry_run:
            return await self._count(names)
        try:
            if await self._take():
                return await self._round([task for task in self._tasks if task.name in names])
        except _LeaseLost:
            pass
        raise ActRefused("pruning", "another process sweeps at this moment", "try again in a minute")

    def _is_due(self, task: Task) -> bool:
        done_at = self._done_at.get(task.name)
        return done_at is None or time.monotonic() - done_at >= task.every.total_seconds()

    async def _round(self, due: list[Task]) -> dict[str, int]:
        """Each task to its end under the lease, which is given back; rows removed by table."""
        removed: Counter[str] = Counter()
        whole = False
        try:
            for task in due:
                removed.update(await self._finish(task))
                self._done_at[task.name] = time.monotonic()
            whole = True
        finally:
            await self._give_back(whole)
        return dict(removed)

    async def _finish(self, task: Task) -> Counter[str]:
        removed: Counter[str] = Counter()
        after = task.start
        while True:
            started = time.monotonic()
            async with self._database.transaction() as tx:
                batch = await task.step(tx, after)
            self._note(batch)
            removed.update(batch.removed)
            if batch.after is None:
                return removed
            after = batch.after
            await asyncio.sleep(self._rest * (time.monotonic() - started))
            if not await self._take():
                raise _LeaseLost

    def _note(self, batch: Batch) -> None:
        for table, rows in batch.removed.items():
            if rows:
                self._pruned(table, rows)

    async def _count(self, names: Collection[str]) -> dict[str, int]:
        found: Counter[str] = Counter()
        for task in tasks(self._retention, self._batch, limits=self._limits, memory_at_once=NO_BOUND):
            if task.name in names:
                found.update(await self._count_task(task))
        return dict(found)

    async def _count_task(self, task: Task) -> Counter[str]:
        if task.name == "reservations":
            # Its batches begin anew each time: rolled back, they would not end.
            async with self._database.transaction() as tx:
                return Counter(reservations=await admission.count_expired_reservations(tx))
        found: Counter[str] = Counter()
        after = task.start
        while True:
            batch = await self._rolled_back(task, after)
            found.update(batch.removed)
            if batch.after is None or batch.after is True:
                return found
            after = batch.after

    async def _rolled_back(self, task: Task, after: object) -> Batch:
        try:
            async with self._database.transaction() as tx:
                batch = await task.step(tx, after)
                raise _DryRun
        except _DryRun:
            return batch

    async def _take(self) -> bool:
        row = await self._database.fetchrow(TAKE_LEASE, LEASE_NAME, self._holder, LEASE_FOR)
        return row is not None

    async def _give_back(self, whole: bool) -> None:
        """At the end of a round; where that fails, the lease runs out."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1):
                await self._database.execute(END_LEASE, LEASE_NAME, self._holder, whole)
