"""Takeover of dead workers' turns, and the sweeps that find what a crash left behind.

    lease ran out (database clock)  -> session marked dead, in a transaction that waits for its claims
    turns of a dead or ended session -> released with their snapshot, suspects counted, sole suspects charged
    attempts used up                -> failed, "attempts exhausted"
    a finished run that still owns  -> its lane is freed
    an open head that is neither owned nor queued -> queued again

Every sweep repeats: what a late commit adds after one round is found by the next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from schemas.run import RunStatus
from workers.agents.agent import Agent
from workers.postgres.database import Connection, Database, Row
from workers.postgres.sql import load
from workers.turns import store
from workers.turns.claim import DEFAULT_RECALL_WAIT
from workers.turns.policy import ATTEMPTS_EXHAUSTED, InFlight, judge_crash
from workers.turns.session import DEFAULT_LEASE
from workers.turns.store import Ownership, Release

MARK_DEAD_SESSIONS = load(__package__, "mark_dead_sessions")
FIND_ABANDONED_SESSIONS = load(__package__, "find_abandoned_sessions")
FIND_UNQUEUED_LANES = load(__package__, "find_unqueued_lanes")
FIND_TERMINAL_OWNERS = load(__package__, "find_terminal_owners")
FREE_TERMINAL_OWNERS = load(__package__, "free_terminal_owners")

SESSIONS_A_SWEEP = 20
OPEN_RUNS_A_SWEEP = 2000
DEFAULT_MAX_ATTEMPTS = 3
UNREACHABLE = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What one sweep did."""

    dead_sessions: int = 0
    released: int = 0
    exhausted: int = 0
    freed: int = 0
    requeued: int = 0

    @property
    def anything(self) -> bool:
        return self != Recovered()


class Recovery:
    """Sweeps for one worker; any number of workers may sweep at once."""

    def __init__(
        self,
        database: Database,
        agents: Mapping[str, Agent],
        *,
        lease_for: timedelta = DEFAULT_LEASE,
        recall_wait: timedelta = DEFAULT_RECALL_WAIT,
        recovered: Callable[[Recovered], None] = lambda what: None,
    ) -> None:
        self._database = database
        self._agents = agents
        self._lease_for = lease_for
        self._recall_wait = recall_wait
        self._recovered = recovered
        self._looked_at = 0
        self._unreachable_at = -math.inf

    async def run_once(self) -> Recovered:
        """One sweep of everything; raises database errors."""
        try:
            return await self._sweep()
        except UNREACHABLE:
            self._unreachable_at = time.monotonic()
            raise

    async def _sweep(self) -> Recovered:
        dead = 0
        # In an outage leases run out that nobody can renew: as after a start of the server, their owners come first.
        if time.monotonic() - self._unreachable_at > self._lease_for.total_seconds():
            dead = await self._mark_dead_sessions()
        released = exhausted = 0
        for row in await self._database.fetch(FIND_ABANDONED_SESSIONS, SESSIONS_A_SWEEP):
            counts = await self._release_session(row["id"], crashed=row["crashed"])
            released, exhausted = released + counts[0], exhausted + counts[1]
        result = Recovered(
            dead, released, exhausted, await self._free_terminal_owners(), await self._requeue()
        )
        if result.anything:
            self._recovered(result)
        return result

    async def _mark_dead_sessions(self) -> int:
        async with self._database.transaction() as tx:
            rows = await tx.fetch(MARK_DEAD_SESSIONS, self._lease_for, SESSIONS_A_SWEEP)
        for row in rows:
            log.warning("session.taken_over", session_id=str(row["id"]), worker=row["worker"])
        return len(rows)

    async def _release_session(self, session_id: UUID, *, crashed: bool) -> tuple[int, int]:
        async with self._database.transaction() as tx:
            rows = await store.read_session_turns(tx, session_id)
            turns = [row for row in rows if not row["finished"] and row["status"] != RunStatus.WAITING]
            verdicts = judge_crash([self._in_flight(row) for row in turns]) if crashed else []
            exhausted = {verdict.run_id for verdict in verdicts if verdict.exhausted}
            charged = {verdict.run_id for verdict in verdicts if verdict.charged}
            await self._release(
                tx, [row for row in turns if row["run_id"] not in exhausted], crashed, charged
            )
            await self._exhaust(tx, [row for row in turns if row["run_id"] in exhausted])
        for row in turns:
            log.warning(
                "turn.taken_over",
                run_id=str(row["run_id"]),
                session_id=str(session_id),
                crashes=row["crashes"] + int(crashed),
                attempts=row["attempts"] + int(row["run_id"] in charged),
                outcome="failed" if row["run_id"] in exhausted else "interrupted",
            )
        return len(turns) - len(exhausted), len(exhausted)

    def _in_flight(self, row: Row) -> InFlight:
        agent = self._agents.get(row["agent"])
        limit = agent.max_crash_attempts if agent is not None else DEFAULT_MAX_ATTEMPTS
        return InFlight(row["run_id"], row["crashes"], row["attempts"], limit)

    async def _release(self, tx: Connection, turns: Sequence[Row], crashed: bool, charged: set[UUID]) -> None:
        if turns:
            await store.release_turns(
                tx,
                [
                    Release(
                        _own(row),
                        RunStatus.INTERRUPTED.value,
                        timedelta(0),
                        crashes=int(crashed),
                        attempts=int(row["run_id"] in charged),
                        reason="worker lost" if crashed else "released",
                    )
                    for row in turns
                ],
            )

    async def _exhaust(self, tx: Connection, turns: Sequence[Row]) -> None:
        if not turns:
            return
        held = [_own(row) for row in turns]
        failed = [RunStatus.FAILED.value] * len(held)
        await store.settle_runs(tx, held, failed, [ATTEMPTS_EXHAUSTED] * len(held), [None] * len(held))
        await store.mark_next_ready(tx, [own.lane_id for own in held], self._recall_wait)

    async def _free_terminal_owners(self) -> int:
        found = await self._database.fetch(FIND_TERMINAL_OWNERS, OPEN_RUNS_A_SWEEP)
        if not found:
            return 0
        lanes = [row["lane_id"] for row in found]
        async with self._database.transaction() as tx:
            locked = await store.lock_lanes(tx, lanes)
            freed = [row["lane_id"] for row in await tx.fetch(FREE_TERMINAL_OWNERS, locked)]
            if freed:
                await store.mark_next_ready(tx, sorted(freed), self._recall_wait)
        for lane_id in freed:
            log.warning("lane.freed", lane_id=lane_id, reason="a finished run still owned it")
        return len(freed)

    async def _requeue(self) -> int:
        """Look at the next stretch of open runs; a whole round of them takes several calls."""
        rows = await self._database.fetch(FIND_UNQUEUED_LANES, self._looked_at, OPEN_RUNS_A_SWEEP)
        self._looked_at = rows[-1]["lane_id"] if rows else 0
        missing = [row["lane_id"] for row in rows if row["unqueued"]]
        if not missing:
            return 0
        async with self._database.transaction() as tx:
            locked = await store.lock_lanes(tx, missing)
            requeued = await store.requeue_lanes(tx, locked)
        for lane_id in requeued:
            log.warning(
                "lane.requeued", lane_id=lane_id, reason="its due head was missing from the ready queue"
            )
        return len(requeued)


def _own(row: Row) -> Ownership:
    return Ownership(row["lane_id"], row["run_id"], row["epoch"])
