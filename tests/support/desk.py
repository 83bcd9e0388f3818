"""A desk is one worker's turns on a real database, without Kafka; several desks are several workers.

Its parts are put together as the turns role does it. Events are admitted directly; `work()` runs rounds of claims
until nothing is due, `running()` lets the loop and the recovery go on by themselves as in a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from schemas.event import Event
from tests.support.events import candidates_of
from workers.admission.policy import Admitted
from workers.admission.service import Admission
from workers.agents.agent import Agent
from workers.memory.access import Access, Allow, Authorize
from workers.memory.limits import Conversations, Limits
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.postgres.hints import Wake
from workers.telemetry.metrics import Metrics
from workers.turns.claim import Claims
from workers.turns.execution import Execution
from workers.turns.journal import StepJournal
from workers.turns.loop import TurnLoop
from workers.turns.pauses import Pauses
from workers.turns.policy import Backoff, Caps
from workers.turns.recovery import Recovery
from workers.turns.session import DEFAULT_LEASE, WorkerSession
from workers.turns.settle import Settlements

RECALL_WAIT = timedelta(seconds=2)


def nothing(point: str) -> None:
    """No fault at any point."""


async def allow(access: Access) -> Allow:
    """A policy that lets everybody in."""
    return Allow()


@dataclass
class Desk:
    """One worker's turns, and ways to look at what became of them."""

    url: str
    database: Database
    agents: Mapping[str, Agent]
    session: WorkerSession
    claims: Claims
    journal: StepJournal
    settlements: Settlements
    loop: TurnLoop
    recovery: Recovery
    metrics: Metrics
    admission: Admission
    pauses: Pauses
    left: list[str] = field(default_factory=list)
    """Why the process would have ended itself."""

    async def admit(self, agent: str, *events: Event) -> list[UUID]:
        """Admit these events for `agent` as one batch; the runs in the events' order."""
        outcomes = await self.admission.admit(candidates_of(self.agents[agent], events))
        assert all(isinstance(outcome, Admitted) for outcome in outcomes), outcomes
        return [outcome.run_id for outcome in outcomes if isinstance(outcome, Admitted)]

    async def turn_once(self) -> bool:
        """One round of claims, until what it claimed has been settled; True where another may find more."""
        again = await self.loop.run_once()
        await self.loop.idle()
        return again

    async def work(self, most_rounds: int = 1000) -> None:
        """Rounds until nothing is due now."""
        for _ in range(most_rounds):
            again = await self.turn_once()
            if not again and not await self.due():
                return
        raise AssertionError(f"something is still due after {most_rounds} rounds")

    @asynccontextmanager
    async def running(self, recover_every: timedelta = timedelta(seconds=0.2)) -> AsyncIterator[None]:
        """The loop, the recovery and the lost session's end go on while the block runs."""
        tasks = [
            asyncio.create_task(self.loop.run()),
            asyncio.create_task(self._recover(recover_every)),
            asyncio.create_task(self._abandon_when_lost()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ended:
            if isinstance(end, Exception):
                raise end

    async def _recover(self, every: timedelta) -> None:
        while True:
            try:
                await self.recovery.run_once()
            except Exception as error:
                if not is_retryable(error):
                    raise
            await asyncio.sleep(every.total_seconds())

    async def _abandon_when_lost(self) -> None:
        await self.session.lost.wait()
        self.loop.stop_all("lost")

    async def due(self) -> int:
        """How many lanes could be claimed now."""
        return int(
            await self.value(
                "select count(*) from ready where due_at <= parley_now() and agent = any($1)", [*self.agents]
            )
        )

    async def value(self, statement: str, *arguments: object) -> Any:
        """The one value of a query."""
        row = await self.database.fetchrow(statement, *arguments)
        return None if row is None else row[0]

    async def rows(self, statement: str, *arguments: object) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.database.fetch(statement, *arguments)]

    async def run(self, run_id: UUID) -> dict[str, Any]:
        """The run's row."""
        [row] = await self.rows("select * from runs where id = $1", run_id)
        return row

    async def status(self, run_id: UUID) -> str:
        return str((await self.run(run_id))["status"])

    async def statuses(self) -> dict[str, int]:
        """How many runs stand in each status."""
        return {
            row["status"]: row["n"]
            for row in await self.rows("select status, count(*) as n from runs group by status")
        }

    async def lane_of(self, run_id: UUID) -> dict[str, Any]:
        """The row of the run's lane."""
        [row] = await self.rows(
            "select l.* from lanes l join runs r on r.lane_id = l.id where r.id = $1", run_id
        )
        return row

    async def turn_of(self, run_id: UUID) -> dict[str, Any] | None:
        """The turn that the run owns its lane by, if it does."""
        rows = await self.rows("select * from turns where run_id = $1", run_id)
        return rows[0] if rows else None

    async def replies(self, run_id: UUID | None = None) -> list[str]:
        """The texts of journalled deliveries, in order."""
        rows = await self.rows(
            "select body from deliveries where $1::uuid is null or run_id = $1 order by position", run_id
        )
        return [row["body"].decode() for row in rows]

    async def lapse(self) -> None:
        """Let this worker's lease have run out; its thread no longer renews."""
        await self.session.stop_renewing()
        await self.database.execute(
            "update worker_sessions set lease_until = parley_now() - interval '1 second' where id = $1",
            self.session.id,
        )


@asynccontextmanager
async def a_desk(
    url: str,
    *agents: Agent,
    slots: int = 64,
    caps: Caps | None = None,
    authorize: Authorize = allow,
    limits: Limits | None = None,
    lease_for: timedelta = DEFAULT_LEASE,
    recall_wait: timedelta = RECALL_WAIT,
    backoff: Backoff | None = None,
    reached: Callable[[str], None] = nothing,
    pool_size: int = 8,
    lock_timeout: timedelta = timedelta(seconds=5),
    idle_in_transaction_timeout: timedelta = timedelta(seconds=5),
    split: Callable[[str, str], Sequence[str]] = lambda channel, text: (text,),
    poll_every: timedelta = timedelta(milliseconds=100),
) -> AsyncIterator[Desk]:
    """A worker with an open session over the database at `url`; it ends without a drain."""
    database = await Database.open(
        url,
        max_size=pool_size,
        lock_timeout=lock_timeout,
        idle_in_transaction_timeout=idle_in_transaction_timeout,
    )
    known = {agent.name: agent for agent in agents}
    conversations = Conversations(authorize, limits or Limits())
    left: list[str] = []
    session = WorkerSession(url, lease_for=lease_for, leave_process=lambda: left.append("stuck loop"))
    await session.start()
    journal = StepJournal(database, lambda addresses: None, reached=reached)
    wake = Wake()
    settlements = Settlements(database, recall_wait=recall_wait, next_ready=wake.set, reached=reached)
    pauses = Pauses(database, Wake())
    claims = Claims(
        database,
        known,
        conversations,
        caps or Caps.for_slots(slots, len(known)),
        recall_wait=recall_wait,
        paused=lambda: pauses.now,
        reached=reached,
    )
    metrics = Metrics()
    loop = TurnLoop(
        database,
        known,
        session,
        claims,
        Execution(database, known, conversations, journal, split, backoff=backoff),
        settlements,
        wake,
        metrics,
        poll_every=poll_every,
    )
    recovery = Recovery(database, known, lease_for=lease_for, recall_wait=recall_wait)
    try:
        yield Desk(
            url,
            database,
            known,
            session,
            claims,
            journal,
            settlements,
            loop,
            recovery,
            metrics,
            Admission(database),
            pauses,
            left,
        )
    finally:
        loop.stop_all("lost")
        await loop.idle()
        await session.stop_renewing()
        await database.close()
