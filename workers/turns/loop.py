"""The turn loop: fills free slots with claimed turns, runs each in a task of its own, settles what ends.

A hint wakes it, or a turn that ends where there was no room, and it polls as well. It never waits for an agent: a slow
one holds its own slot and its own conversation.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from schemas.run import RunStatus
from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership
from workers.postgres.database import Database
from workers.postgres.failures import is_data_error, is_retryable
from workers.postgres.group_commit import GATHERING_TURNS
from workers.postgres.hints import Wake
from workers.telemetry.metrics import Metrics
from workers.telemetry.pace import Pace
from workers.turns import store
from workers.turns.claim import Claimed, Claims
from workers.turns.execution import Execution, StopReason, TurnEnd
from workers.turns.policy import QUICK_AGENT_SECONDS, Ended, LetGo, Lost, TryAgain
from workers.turns.session import WorkerSession
from workers.turns.settle import Settlement, Settlements
from workers.turns.store import SessionGone

CANCEL_CHECK_SECONDS = 0.25
MAX_SETTLING = 256
"""Turns whose agent has ended and whose settlement is under way; they take no slot, so that claims go on meanwhile."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Running:
    claimed: Claimed
    deadline: float
    agent_ended: bool = False


class TurnLoop:
    """One worker's turns. `run()` until cancelled; `run_once()` for one round of claims."""

    def __init__(
        self,
        database: Database,
        agents: Mapping[str, Agent],
        session: WorkerSession,
        claims: Claims,
        execution: Execution,
        settlements: Settlements,
        wake: Wake,
        metrics: Metrics,
        *,
        poll_every: timedelta = timedelta(milliseconds=250),
    ) -> None:
        self._database = database
        self._agents = agents
        self._session = session
        self._claims = claims
        self._execution = execution
        self._settlements = settlements
        self._wake = wake
        self._metrics = metrics
        self._poll_every = poll_every
        self._running: dict[UUID, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_cancel_check = 0.0
        self._pace = Pace()
        self._claiming = asyncio.Lock()
        self._unsure = False
        self._left = True
        self._given_back = 0
        self.draining = False

    @property
    def active(self) -> int:
        """Turns that this worker owns now."""
        return len(self._running)

    async def run(self) -> None:
        """Claim and run turns until cancelled or told to drain; a database outage is waited out."""
        while not self.draining:
            again = False
            try:
                await self.look_after()
                again = await self.run_once()
            except SessionGone:
                self._session.lost.set()
                return
            except Exception as error:
                if not is_retryable(error):
                    raise
                log.warning("turns.waiting", error=type(error).__name__)
            if not again:
                await self._wake.wait(self._poll_every)
                # Turns that end together free their slots for one claim.
                for _ in range(GATHERING_TURNS):
                    await asyncio.sleep(0)

    async def run_once(self) -> bool:
        """Claim once and start what was claimed; True when another round may find more at once. Raises SessionGone."""
        async with self._claiming:
            if self.draining:
                return False
            await self._give_back_strays()
            active = [each.claimed for each in self._running.values() if not each.agent_ended]
            settling = [each.claimed for each in self._running.values() if each.agent_ended]
            if len(settling) >= MAX_SETTLING:
                self._left = True
                return False
            given_back = self._given_back
            with self._unsure_unless_done():
                quick = self._pace.is_quicker_than(QUICK_AGENT_SECONDS)
                claim = await self._claims.claim(
                    self._session.id, active, settling=settling, waiting=self._execution.waiting, quick=quick
                )
            self._left = claim.left
            if self._given_back != given_back:
                self._wake_where_it_matters()
            for claimed in claim.turns:
                self._start(claimed)
        return claim.again

    async def _give_back_strays(self) -> None:
        """After a claim or a settlement that did not come back: let go of turns that the database counts as ours."""
        if self._unsure:
            self._unsure = False
            known = {running.claimed.own for running in self._running.values()}
            with self._unsure_unless_done():
                await self._claims.give_back(self._session.id, known)

    @contextlib.contextmanager
    def _unsure_unless_done(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._unsure = True
            raise

    async def idle(self) -> None:
        """Wait until every turn of this worker has been settled."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look_after(self) -> None:
        """Stop turns that ran out of time, or that somebody asked to cancel."""
        now = time.monotonic()
        for running in list(self._running.values()):
            if now > running.deadline:
                self._stop(running, "timeout")
        if self._running and now >= self._next_cancel_check:
            self._next_cancel_check = now + CANCEL_CHECK_SECONDS
            async with self._database.acquire() as connection:
                for run_id in await store.read_cancelled(connection, list(self._running)):
                    if run_id in self._running:
                        self._stop(self._running[run_id], "cancelled")

    def stop_all(self, reason: StopReason) -> None:
        """Cancel every agent task; each turn then settles as `reason` says."""
        for running in list(self._running.values()):
            self._stop(running, reason)

    async def drain(self, grace: timedelta, at_most: timedelta = timedelta(seconds=5)) -> int:
        """Claim no more, let turns finish for `grace`, then release the rest; returns how many did not let go."""
        self.draining = True
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace.total_seconds()):
                # A claim under way still brings turns.
                async with self._claiming:
                    pass
                while self._tasks:
                    await self._look_after_or_wait()
                    if self._tasks:
                        await asyncio.wait(set(self._tasks), timeout=CANCEL_CHECK_SECONDS)
        self.stop_all("released")
        return await self.let_go(at_most)

    async def let_go(self, at_most: timedelta) -> int:
        """Wait for turns that were stopped; returns how many are still there, their agents deaf to cancellation."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=at_most.total_seconds())
        return len(self._running)

    async def _look_after_or_wait(self) -> None:
        try:
            await self.look_after()
        except Exception as error:
            if not is_retryable(error):
                raise
            log.warning("turns.waiting", error=type(error).__name__)

    def _start(self, claimed: Claimed) -> None:
        agent = self._agents[claimed.head.agent]
        running = _Running(claimed, time.monotonic() + agent.timeout.total_seconds())
        self._running[claimed.own.run_id] = running
        task = asyncio.create_task(self._see_through(running), name="turn")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._metrics.turns_running.set(len(self._running))

    def _stop(self, running: _Running, reason: StopReason) -> None:
        """Cancel the agent of a turn, never its settlement."""
        if not running.agent_ended:
            self._execution.stop(running.claimed.own.run_id, reason)

    async def _see_through(self, running: _Running) -> None:
        """Run one turn's agent and settle what came of it."""
        claimed, started, outcome = running.claimed, time.monotonic(), "not_settled"
        try:
            try:
                end = await self._execution.run(claimed)
            finally:
                running.agent_ended = True
                self._given_back += 1
                self._wake_where_it_matters()
            self._pace.note(end.agent_seconds)
            outcome = await self._settle(claimed, end)
        except LostOwnership:
            outcome = "lost"
        except Exception as error:
            log.error("turn.not_settled", run_id=str(claimed.own.run_id), error=type(error).__name__)
        finally:
            self._unsure = self._unsure or outcome == "not_settled"
            # The same run may have been claimed again before the answer to its settlement came back.
            if self._running.get(claimed.own.run_id) is running:
                del self._running[claimed.own.run_id]
            self._count(claimed, outcome, time.monotonic() - started)
            self._given_back += 1
            self._wake_where_it_matters()

    def _wake_where_it_matters(self) -> None:
        """After turns gave something back: look again only where the last look had to leave something."""
        if self._left or self._unsure:
            self._wake.set()

    async def _settle(self, claimed: Claimed, end: TurnEnd) -> str:
        match end.ending:
            case Lost():
                return "lost"
            case (Ended() | TryAgain() | LetGo()) as ending:
                try:
                    await self._settlements.settle(Settlement(claimed, ending, end.usage))
                except Exception as error:
                    if not is_data_error(error):
                        raise
                    ending = Ended(RunStatus.FAILED, f"refused at settlement: {type(error).__name__}")
                    await self._settlements.settle(Settlement(claimed, ending))
                self._note(claimed, end)
                return ending.status.value if isinstance(ending, Ended) else _released(ending)

    def _note(self, claimed: Claimed, end: TurnEnd) -> None:
        agent = claimed.head.agent
        # Once a run, at its end: a resumed run meters again what it replays.
        for model, used in end.meter.models.items() if isinstance(end.ending, Ended) else ():
            self._metrics.tokens.labels(agent, model, "input").inc(used.input_tokens)
            self._metrics.tokens.labels(agent, model, "output").inc(used.output_tokens)
        if end.meter.notes_denied:
            self._metrics.policy_decisions.labels("notes_denied").inc(end.meter.notes_denied)
        if isinstance(end.ending, Ended) and end.ending.withhold_input:
            self._metrics.policy_decisions.labels("recall_denied").inc()
        if end.meter.ended_unsent and claimed.snapshot is not None:
            self._metrics.silent_memory_runs.labels(agent).inc()

    def _count(self, claimed: Claimed, outcome: str, seconds: float) -> None:
        agent = claimed.head.agent
        self._metrics.turns.labels(agent, outcome).inc()
        self._metrics.turn_seconds.labels(agent).observe(seconds)
        self._metrics.turns_running.set(len(self._running))
        if outcome == "lost":
            self._metrics.lease_losses.inc()
            log.warning("ownership.lost", run_id=str(claimed.own.run_id), epoch=claimed.own.epoch)
        else:
            log.info("turn.finished", run_id=str(claimed.own.run_id), agent=agent, outcome=outcome)


def _released(ending: TryAgain | LetGo) -> str:
    return "retried" if isinstance(ending, TryAgain) else "released"
