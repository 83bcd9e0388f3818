"""Real transactions stopped in the middle: who does a chosen thing to a table waits there until it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from tests.support.waiting import eventually
from workers.postgres.database import Connection, Database

T = TypeVar("T")
_WAITING = """
select count(*) from pg_stat_activity
 where datname = current_database() and wait_event_type = 'Lock' and (wait_event = 'advisory') = $1
"""


class Gate:
    """At most one transaction is stopped at a time; others wait for what it has locked."""

    def __init__(self, database: Database, keeper: Connection) -> None:
        self._database = database
        self._keeper = keeper

    async def stop(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `work`; returns once its transaction stands at the gate."""
        task = asyncio.ensure_future(work)
        await eventually("it stands at the gate", lambda: self._or_ended(task, at_gate=True))
        assert not task.done(), f"it never came to the gate: {task}"
        return task

    async def behind(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `work`; returns once it waits for a lock that the stopped transaction holds."""
        task = asyncio.ensure_future(work)
        await eventually("it waits for the other", lambda: self._or_ended(task, at_gate=False))
        assert not task.done(), f"it did not wait: {task}"
        return task

    async def open(self) -> None:
        """Let go of who stands there; nobody is stopped any more."""
        await self._keeper.execute("select pg_advisory_unlock(4711)")

    async def _or_ended(self, task: asyncio.Task[Any], *, at_gate: bool) -> bool:
        row = await self._database.fetchrow(_WAITING, at_gate)
        assert row is not None
        return task.done() or row[0] > 0


@asynccontextmanager
async def a_gate(
    database: Database, table: str, act: Literal["insert", "update", "delete"]
) -> AsyncIterator[Gate]:
    """Stops the first statement that does `act` to `table` before it does anything, its transaction open."""
    await database.execute(
        "create or replace function stand_at_gate() returns trigger language plpgsql as $$ begin"
        " perform pg_advisory_xact_lock_shared(4711); return null; end $$"
    )
    await database.execute(
        f"create trigger gate before {act} on {table} for each statement execute function stand_at_gate()"
    )
    async with database.acquire() as keeper:
        await keeper.execute("select pg_advisory_lock(4711)")
        gate = Gate(database, keeper)
        try:
            yield gate
        finally:
            await gate.open()
    await database.execute(f"drop trigger gate on {table}")
