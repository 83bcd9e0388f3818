"""From a batch of records to committed runs: verify, route, authorize, admit, acknowledge.

    refused        -> dead letter acknowledged by the broker, then the record
    no subscriber  -> acknowledged
    denied         -> acknowledged, no row anywhere
    undecided      -> parked un-acknowledged with the later events of its place, asked again, dead-lettered at last
    admitted, duplicate, healed -> acknowledged once the transaction has committed

An un-acknowledged record holds its partition's offset back, so a crash anywhere here repeats and never skips.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

import structlog

from schemas.event import Event
from schemas.reason import Reason, RefusedRecord
from schemas.run import new_uuid7
from schemas.signing import VerifyKey
from schemas.verdict import verify_record
from workers.admission.policy import Admitted, Candidate, Duplicate, Healed, Mismatch, Outcome, Unhealable
from workers.admission.service import Admission
from workers.agents.agent import Agent
from workers.channels.port import Channel
from workers.intake.authorizing import POLICY_PATIENCE, Authorizer, Decided, Question, Undecided
from workers.intake.dead_letters import DeadLetters, Refusal
from workers.intake.policy import candidate, subscribers
from workers.kafka.record import Record
from workers.postgres.failures import is_data_error
from workers.telemetry.metrics import Metrics

RETRY_PARKED_EVERY = timedelta(milliseconds=500)
RETRIED_AT_ONCE = 64
"""Events of one place that the policy is asked about again together."""

log = structlog.get_logger(__name__)

Acknowledge = Callable[[Iterable[Record]], None]


class Arrival(NamedTuple):
    """A proven event and the agents that listen to it."""

    record: Record
    event: Event
    agents: tuple[Agent, ...]
    traceparent: str | None

    @property
    def place(self) -> bytes:
        """What the events of one thread share: the record key, which was proven to follow from the event."""
        return self.record.key or b""


@dataclass(slots=True)
class _Waiting:
    """An arrival whose place waits for the policy, since when, and the policy's last answer about it."""

    arrival: Arrival
    since: float
    answer: Decided | Undecided = field(default_factory=Undecided)


class Intake:
    """Handles batches of one consumer; `handle` returns when all of a batch is acknowledged or parked."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        channels: Mapping[str, Channel],
        admission: Admission,
        authorizer: Authorizer,
        dead_letters: DeadLetters,
        metrics: Metrics,
        *,
        event_age_limit: timedelta,
        admitted: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        policy_patience: timedelta = POLICY_PATIENCE,
    ) -> None:
        self._agents = tuple(agents.values())
        self._channels = channels
        self._admission = admission
        self._authorizer = authorizer
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._event_age_limit = event_age_limit
        self._admitted = admitted
        self._now = now
        self._clock = clock
        self._patience = policy_patience.total_seconds()
        self._parked: dict[bytes, deque[_Waiting]] = {}

    @property
    def parked(self) -> int:
        """Records that wait for the policy, un-acknowledged."""
        return sum(len(waiting) for waiting in self._parked.values())

    async def handle(self, records: Sequence[Record], acknowledge: Acknowledge) -> None:
        """Admit a batch; raises what is nobody's fault, with nothing acknowledged that is not final."""
        arrivals, refusals, ignored = self._verify(records)
        acknowledge(ignored)
        await self._take(arrivals, acknowledge)
        await self._bury(refusals, acknowledge)

    async def retry_parked(self, acknowledge: Acknowledge) -> None:
        """Ask the policy again about what waits, every place at once, and go on with what is decided."""
        self._forget_revoked()
        async with asyncio.TaskGroup() as places:
            for place in list(self._parked):
                places.create_task(self._retry_place(place, acknowledge))

    def _forget_revoked(self) -> None:
        """Drop what waits of partitions that are others' now: they read it again, and may decide otherwise."""
        for place, waiting in list(self._parked.items()):
            if any(each.arrival.record.revoked for each in waiting):
                kept = deque(each for each in waiting if not each.arrival.record.revoked)
                self._parked[place] = kept
                if not kept:
                    del self._parked[place]

    async def run_retries(self, acknowledge: Acknowledge, every: timedelta = RETRY_PARKED_EVERY) -> None:
        """Retry parked events until cancelled."""
        while True:
            await asyncio.sleep(every.total_seconds())
            await self.retry_parked(acknowledge)

    def _verify(self, records: Sequence[Record]) -> tuple[list[Arrival], list[Refusal], list[Record]]:
        arrivals: list[Arrival] = []
        refusals: list[Refusal] = []
        ignored: list[Record] = []
        now = self._now()
        for record in records:
            try:
                proven = verify_record(
                    record.headers, record.key, record.value, self._keys, now, self._event_age_limit
                )
            except RefusedRecord as error:
                refusals.append(Refusal(record, error.reason, error.detail))
                continue
            agents = tuple(subscribers(self._agents, proven.event))
            if agents:
                arrivals.append(Arrival(record, proven.event, agents, proven.traceparent))
            else:
                ignored.append(record)
                self._count(proven.event, "unsubscribed")
        return arrivals, refusals, ignored

    def _keys(self, channel: str) -> Sequence[VerifyKey] | None:
        registered = self._channels.get(channel)
        return None if registered is None or registered.keys is None else registered.keys.verify_keys(channel)

    async def _take(self, arrivals: Sequence[Arrival], acknowledge: Acknowledge) -> None:
        """Admit the decided ones in order; park the undecided ones and what comes behind them."""
        free = [arrival for arrival in arrivals if arrival.place not in self._parked]
        answers = await self._authorizer.decide_all([Question(each.event, each.agents) for each in free])
        answer_of = dict(zip(map(id, free), answers, strict=True))
        decided: list[tuple[Arrival, Decided]] = []
        for arrival in arrivals:
            answer = answer_of.get(id(arrival), Undecided())
            waiting = self._parked.get(arrival.place)
            if waiting is None and isinstance(answer, Decided):
                decided.append((arrival, answer))
            else:
                place = self._parked.setdefault(arrival.place, deque())
                place.append(_Waiting(arrival, self._clock(), answer))
        await self._admit(decided, acknowledge)

    async def _retry_place(self, place: bytes, acknowledge: Acknowledge) -> None:
        """Ask about the first of those that wait, and settle them in order up to one that goes on waiting."""
        waiting = self._parked[place]
        while waiting:
            first = list(islice(waiting, RETRIED_AT_ONCE))
            await self._ask_again([each for each in first if isinstance(each.answer, Undecided)])
            decided: list[tuple[Arrival, Decided]] = []
            expired: list[Refusal] = []
            for each in first:
                if isinstance(each.answer, Decided):
                    decided.append((each.arrival, each.answer))
                elif self._clock() - each.since >= self._patience:
                    expired.append(Refusal(each.arrival.record, Reason.POLICY_UNAVAILABLE))
                else:
                    break
            await self._admit(decided, acknowledge)
            await self._bury(expired, acknowledge)
            settled = len(decided) + len(expired)
            for _ in range(settled):
                waiting.popleft()
            if settled < len(first):
                return
        del self._parked[place]

    async def _ask_again(self, undecided: Sequence[_Waiting]) -> None:
        questions = []
        for each in undecided:
            assert isinstance(each.answer, Undecided)
            questions.append(Question(each.arrival.event, each.arrival.agents, each.answer.known))
        answers = await self._authorizer.decide_all(questions)
        for each, answer in zip(undecided, answers, strict=True):
            each.answer = answer

    async def _admit(self, decided: Sequence[tuple[Arrival, Decided]], acknowledge: Acknowledge) -> None:
        asked: list[tuple[Arrival, Candidate]] = []
        refusals: list[Refusal] = []
        for arrival, answer in decided:
            if not answer.allowed:
                self._count(arrival.event, "denied")
            for agent in answer.allowed:
                try:
                    run = candidate(agent, arrival.event, new_uuid7(), arrival.traceparent)
                except Exception as error:
                    # The agent's own concurrency_key failed; the event is kept where an operator can replay it.
                    detail = f"{agent.name}: {type(error).__name__}"
                    refusals.append(Refusal(arrival.record, Reason.REFUSED_BY_STORE, detail))
                else:
                    asked.append((arrival, run))
        outcomes = await self._admission.admit([each for _, each in asked])
        for (arrival, _), outcome in zip(asked, outcomes, strict=True):
            refusal = self._judge(arrival, outcome)
            if refusal is not None:
                refusals.append(refusal)
        await self._bury(refusals, acknowledge)
        acknowledge(arrival.record for arrival, _ in decided)
        if asked:
            self._admitted()

    def _judge(self, arrival: Arrival, outcome: Outcome | Exception) -> Refusal | None:
        """Count what became of an event for one agent; a refusal where it must be kept for an operator."""
        event, record = arrival.event, arrival.record
        match outcome:
            case Admitted(run_id) | Healed(run_id):
                self._count(event, "admitted" if isinstance(outcome, Admitted) else "healed")
                self._metrics.admission_seconds.observe(max(0.0, time.time() - record.timestamp))
                log.info("event.admitted", event_id=event.event_id, run_id=str(run_id), channel=event.channel)
                return None
            case Duplicate(run_id):
                self._count(event, "duplicate")
                log.info(
                    "event.duplicate", event_id=event.event_id, run_id=str(run_id), channel=event.channel
                )
                return None
            case Mismatch():
                self._count(event, "mismatch")
                return Refusal(record, Reason.PAYLOAD_MISMATCH, event.event_id)
            case Unhealable():
                self._count(event, "unhealable")
                return Refusal(record, Reason.UNHEALABLE, event.event_id)
            case error:
                if not is_data_error(error):
                    raise error
                self._count(event, "refused")
                return Refusal(record, Reason.REFUSED_BY_STORE, type(error).__name__)

    async def _bury(self, refusals: Sequence[Refusal], acknowledge: Acknowledge) -> None:
        if refusals:
            await self._dead_letters.bury(refusals, self._now())
            acknowledge([refusal.record for refusal in refusals])

    def _count(self, event: Event, outcome: str) -> None:
        self._metrics.events.labels(event.channel, outcome).inc()
