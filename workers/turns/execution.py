"""One turn from its claim to how it ended: ask the policy, run the agent, name the ending.

Nothing here runs inside a transaction, and nothing but the step journal is written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

import asyncpg
import structlog

from schemas import jsonio
from schemas.run import RunStatus
from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership, Permanent, Retryable, classify
from workers.agents.journal import Emit, StepRecord
from workers.agents.meter import Meter
from workers.agents.runner import run_agent
from workers.agents.turn import Split, Turn
from workers.memory.access import Access, Allow, Deny, Purpose
from workers.memory.asking import ask
from workers.memory.binding import identity_of
from workers.memory.limits import Conversations
from workers.memory.notes import Notebook, Notes, NoteScope
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.turns import store
from workers.turns.claim import Claimed
from workers.turns.journal import StepJournal
from workers.turns.policy import DEFAULT_SLOTS, Backoff, Ended, Ending, LetGo, Lost, TryAgain, after_retryable

AUTHORIZE_TIMEOUT: Final = timedelta(seconds=5)
FAILURE_STEP: Final = 2**31 - 1
"""Where the message of `on_failure` stands in the journal: after every step an agent can take."""

StopReason = Literal["cancelled", "timeout", "released", "lost"]

# Everything else that the user's code raises ends its turn and nothing more, SystemExit included.
_NOT_THE_AGENTS: Final = (asyncio.CancelledError, KeyboardInterrupt)

log = structlog.get_logger(__name__)


class TurnEnd(NamedTuple):
    """How a turn ended, and what its run used."""

    ending: Ending
    meter: Meter
    agent_seconds: float
    """What the turn took beside its waits for a slot and for its journal."""

    @property
    def usage(self) -> str:
        """The usage as the JSON text that is kept with the run."""
        return jsonio.dumps(self.meter.as_document()).decode()


class _Slot:
    """A place among the agents that run: taken to start, given back at the first wait for a commit, or at the end."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = False
        self.taken_at: float | None = None

    async def take(self) -> None:
        await self._places.acquire()
        self._held, self.taken_at = True, time.monotonic()

    def give_back(self) -> None:
        if self._held:
            self._held = False
            self._places.release()


class Execution:
    """Runs claimed turns, at most `slots` agents at a time; holds what all of them share."""

    def __init__(
        self,
        database: Database,
        agents: Mapping[str, Agent],
        conversations: Conversations | None,
        journal: StepJournal,
        split: Split,
        *,
        slots: int = DEFAULT_SLOTS,
        backoff: Backoff | None = None,
        authorize_timeout: timedelta = AUTHORIZE_TIMEOUT,
    ) -> None:
        self._database = database
        self._agents = agents
        self._conversations = conversations
        self._journal = journal
        self._split = split
        self._notes = Notes(database)
        self._places = asyncio.Semaphore(slots)
        self._backoff = backoff or Backoff()
        self._authorize_seconds = authorize_timeout.total_seconds()
        self._tasks: dict[UUID, asyncio.Task[Any]] = {}
        self._stopping: dict[UUID, StopReason] = {}
        self._apologizing: set[UUID] = set()

    def stop(self, run_id: UUID, reason: StopReason) -> None:
        """Cancel the agent of a turn that runs or is about to; its `run` returns what the first `reason` asks for."""
        if run_id in self._apologizing and reason in ("cancelled", "timeout"):
            return
        self._stopping.setdefault(run_id, reason)
        if task := self._tasks.get(run_id):
            task.cancel()

    @property
    def waiting(self) -> Collection[UUID]:
        """Runs that wait for a commit of their journal at this moment."""
        return self._journal.waiting

    async def run(self, claimed: Claimed) -> TurnEnd:
        """Run the turn's agent in the caller's task; every outcome of normal life is a value, a lost turn included."""
        meter, run_id, slot = Meter(), claimed.own.run_id, _Slot(self._places)
        agent, task = self._agents[claimed.head.agent], asyncio.current_task()
        assert task is not None
        self._tasks[run_id] = task
        try:
            ending = await self._unless_stopped(run_id, task, self._run(agent, claimed, meter, slot))
            if isinstance(ending, Ended) and ending.status is RunStatus.FAILED and agent.on_failure:
                self._stopping.pop(run_id, None)
                self._apologizing.add(run_id)
                apology = self._apologize(agent, claimed, ending, agent.on_failure)
                if await self._unless_stopped(run_id, task, apology) == Lost():
                    ending = Lost()
        finally:
            del self._tasks[run_id]
            self._stopping.pop(run_id, None)
            self._apologizing.discard(run_id)
            slot.give_back()
            waited, now = self._journal.take_wait(run_id), time.monotonic()
        return TurnEnd(ending, meter, now - (slot.taken_at or now) - waited)

    async def _unless_stopped(
        self, run_id: UUID, task: asyncio.Task[Any], work: Coroutine[Any, Any, Ending]
    ) -> Ending:
        """What `work` ends with, or what follows from why it was stopped; an agent that cancels itself has failed."""
        if run_id in self._stopping:
            task.cancel()
        try:
            ending = await work
        except asyncio.CancelledError:
            if run_id not in self._stopping and task.cancelling():
                raise
            while task.uncancel():
                pass
            ending = Ended(RunStatus.FAILED, "CancelledError")
        reason = self._stopping.get(run_id)
        if reason is None or not _may_follow_from_a_stop(ending):
            return ending
        return _stopped(reason)

    async def _run(self, agent: Agent, claimed: Claimed, meter: Meter, slot: _Slot) -> Ending:
        head = claimed.head
        if head.cancel_requested:
            return Ended(RunStatus.CANCELLED, "cancelled")
        if head.memory_key is not None and head.memory_key != agent.memory_key:
            return Ended(RunStatus.FAILED, "memory key changed")
        await slot.take()
        try:
            answer = await self._authorize(agent, claimed, "recall")
        except _NOT_THE_AGENTS:
            raise
        except BaseException as error:
            log.warning("turn.policy_failed", run_id=str(head.run_id), error=type(error).__name__)
            return after_retryable(head.retries, agent.retries, "policy_unavailable", self._backoff, None)
        if isinstance(answer, Deny):
            log.info("turn.recall_denied", run_id=str(head.run_id), agent=agent.name)
            return Ended(RunStatus.FAILED, "recall_denied", withhold_input=True)
        try:
            turn = await self._turn(agent, claimed, answer, meter, slot)
        except Exception as error:
            if not is_retryable(error):
                return self._failed(agent, claimed, error)
            log.warning("turn.journal_unread", run_id=str(head.run_id), error=type(error).__name__)
            return TryAgain(self._backoff.first, "database_unavailable", charged=False)
        try:
            await run_agent(agent, turn)
        except LostOwnership:
            return Lost()
        except _NOT_THE_AGENTS:
            raise
        except BaseException as error:
            return self._failed(agent, claimed, error)
        return Ended(RunStatus.SUCCEEDED)

    def _failed(self, agent: Agent, claimed: Claimed, error: BaseException) -> Ending:
        verdict = classify(error)
        if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError) and is_retryable(error):
            verdict = Retryable("database_unavailable")
        run_id = str(claimed.own.run_id)
        match verdict:
            case Retryable(reason, retry_after):
                log.warning("turn.failed", run_id=run_id, agent=agent.name, reason=reason, retryable=True)
                return after_retryable(
                    claimed.head.retries, agent.retries, reason, self._backoff, retry_after
                )
            case Permanent(reason):
                log.error("turn.failed", run_id=run_id, agent=agent.name, reason=reason, retryable=False)
                return Ended(RunStatus.FAILED, reason)

    async def _turn(self, agent: Agent, claimed: Claimed, allowed: Allow, meter: Meter, slot: _Slot) -> Turn:
        head, event = claimed.head, claimed.event
        recorded: Mapping[tuple[int, int], StepRecord] = {}
        if head.resumed:
            async with self._database.acquire() as connection:
                recorded = await store.read_steps(connection, head.run_id)
        steps = self._journal.of(claimed, recorded)
        steps.before_wait = slot.give_back
        return Turn(
            agent=agent,
            run_id=head.run_id,
            event=event,
            principal=event.principal,
            user=allowed.user,
            snapshot=claimed.snapshot,
            journal=steps,
            split=self._split,
            notes=self._notebook(agent, claimed),
            meter=meter,
            agents=self._agents,
        )

    def _notebook(self, agent: Agent, claimed: Claimed) -> Notebook | None:
        if claimed.snapshot is None:
            return None
        head, own = claimed.head, claimed.own
        scope = NoteScope(own.lane_id, head.lane_generation, own.epoch, own.run_id)
        return self._notes.open(scope, lambda: self._authorize(agent, claimed, "notes"))

    async def _authorize(self, agent: Agent, claimed: Claimed, purpose: Purpose) -> Allow | Deny:
        """The policy's answer for a bound run; raises what the policy raises, and TimeoutError."""
        event, memory_key = claimed.event, claimed.head.memory_key
        if memory_key is None or self._conversations is None:
            return Allow()
        access = Access(agent.name, identity_of(memory_key, event), event.principal, purpose, event)
        return await ask(self._conversations.authorize, access, self._authorize_seconds)

    async def _apologize(self, agent: Agent, claimed: Claimed, ending: Ended, text: str) -> Ending:
        """Journal the agent's one message about a failure; it is sent and never recalled."""
        record = StepRecord(
            step=FAILURE_STEP,
            call=0,
            kind="emit",
            name="on_failure",
            args_digest=sha256(text.encode()).digest(),
            agent_version=agent.version,
            state="finished",
            result=b"null",
        )
        event, steps = claimed.event, self._journal.of(claimed, {})
        try:
            chunks = tuple(self._split(event.channel, text))
            await steps.write(
                record, Emit(event.channel, event.account, event.address, chunks, recalled=False)
            )
        except LostOwnership:
            return Lost()
        except Exception as error:
            log.error("turn.failure_not_told", run_id=str(claimed.own.run_id), error=type(error).__name__)
        return ending


def _may_follow_from_a_stop(ending: Ending) -> bool:
    """Whether code that was cancelled may have ended so, by its CancelledError or by what it made of it."""
    match ending:
        case Ended(status=RunStatus.FAILED, withhold_input=False) | TryAgain():
            return True
        case _:
            return False


def _stopped(reason: StopReason) -> Ending:
    match reason:
        case "cancelled":
            return Ended(RunStatus.CANCELLED, "cancelled")
        case "timeout":
            return Ended(RunStatus.FAILED, "turn timeout")
        case "released":
            return LetGo()
        case "lost":
            return Lost()
