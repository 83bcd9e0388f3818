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
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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
from workers.intake.authorizing import POLICY_PATIENCE, Authorizer, Decided, Undecided
from workers.intake.dead_letters import DeadLetters, Refusal
from workers.intake.policy import candidate, subscribers
from workers.kafka.record import Record
from workers.postgres.failures import is_data_error
from workers.telemetry.metrics import Metrics

RETRY_PARKED_EVERY = timedelta(milliseconds=500)

log = structlog.get_logger(__name__)

Acknowledge = Callable[[Iterable[Record]], None]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A proven event and the agents that listen to it."""

    record: Record
    event: Event
    agents: tuple[Agent, ...]
    traceparent: str | None


@dataclass(slots=True)
class _Parked:
    """The undecided event of a place, since when, and what waits behind it."""

    since: float
    waiting: deque[Arrival]


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
        self._parked: dict[bytes, _Parked] = {}

    @property
    def parked(self) -> int:
        """Records that wait for the policy, un-acknowledged."""
        return sum(len(parked.waiting) for parked in self._parked.values())

    async def handle(self, records: Sequence[Record], acknowledge: Acknowledge) -> None:
        """Admit a batch; raises what is nobody's fault, with nothing acknowledged that is not final."""
        arrivals, refusals, ignored = self._verify(records)
        await self._bury(refusals, acknowledge)
        acknowledge(ignored)
        await self._take(arrivals, acknowledge)

    async def retry_parked(self, acknowledge: Acknowledge) -> None:
        """Ask the policy again for the first undecided event of each place, and go on with what it held up."""
        for place in list(self._parked):
            await self._retry_place(place, acknowledge)

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
        free = [arrival for arrival in arrivals if arrival.event.record_key not in self._parked]
        answers = dict(
            zip(
                (id(arrival) for arrival in free),
                await self._authorizer.decide_all([(arrival.event, arrival.agents) for arrival in free]),
                strict=True,
            )
        )
        decided: list[tuple[Arrival, Decided]] = []
        for arrival in arrivals:
            answer = answers.get(id(arrival))
            place = self._parked.get(arrival.event.record_key)
            if place is not None:
                place.waiting.append(arrival)
            elif isinstance(answer, Decided):
                decided.append((arrival, answer))
            else:
                self._parked[arrival.event.record_key] = _Parked(self._clock(), deque([arrival]))
        await self._admit(decided, acknowledge)

    async def _retry_place(self, place: bytes, acknowledge: Acknowledge) -> None:
        parked = self._parked[place]
        while parked.waiting:
            arrival = parked.waiting[0]
            answer = await self._authorizer.decide(arrival.event, arrival.agents)
            if isinstance(answer, Undecided):
                if self._clock() - parked.since < self._patience:
                    return
                await self._bury([Refusal(arrival.record, Reason.POLICY_UNAVAILABLE)], acknowledge)
            else:
                await self._admit([(arrival, answer)], acknowledge)
            parked.waiting.popleft()
            parked.since = self._clock()
        del self._parked[place]

    async def _admit(self, decided: Sequence[tuple[Arrival, Decided]], acknowledge: Acknowledge) -> None:
        asked: list[tuple[Arrival, Candidate]] = []
        refusals: list[Refusal] = []
        for arrival, answer in decided:
            if not answer.allowed:
                self._count(arrival.event, "denied")
            try:
                asked += [
                    (arrival, candidate(agent, arrival.event, new_uuid7(), arrival.traceparent))
                    for agent in answer.allowed
                ]
            except Exception as error:
                # The agent's own concurrency_key failed; the event is kept where an operator can replay it.
                refusals.append(Refusal(arrival.record, Reason.REFUSED_BY_STORE, type(error).__name__))
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
