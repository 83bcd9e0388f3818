"""Work from the program itself: one event or job, one committed run, the answer at once.

Nothing here goes through Kafka. A dispatch returns when reservation and queued run have committed, so there is no
record that could be lost or reordered in between; one that raises may be repeated under the same event id, and an event
that also comes by Kafka is the same event. What proves an event is the channel object: who holds the one that the app
was built with is its adapter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog

from schemas.event import Event
from schemas.identity import Principal
from schemas.reason import Reason
from schemas.run import new_uuid7
from workers.admission.policy import Admitted, Candidate, Duplicate, Healed, Mismatch, Unhealable
from workers.admission.service import Admission
from workers.agents.agent import Agent
from workers.agents.errors import UnknownAgent
from workers.agents.unbound import as_read, dispatched, unbound_candidate
from workers.app import App
from workers.channels.port import Channel
from workers.engine.errors import (
    ConcurrencyKeyDiffers,
    EngineStopped,
    EventRefused,
    ForeignEvent,
    NoMemory,
    NotSubscribed,
    NotTheRegisteredChannel,
    StoreAway,
)
from workers.intake.authorizing import Authorizer, Question, Undecided
from workers.intake.policy import candidate
from workers.memory.access import PolicyUnavailable
from workers.memory.binding import concurrency_key_of, identity_of
from workers.postgres.database import Database
from workers.postgres.failures import is_data_error, is_retryable
from workers.postgres.sql import load
from workers.telemetry.metrics import Metrics

READ_DUE_WORK = load(__package__, "read_due_work")
ASK_EVERY_SECONDS: Final = 0.05
PATIENCE: Final = timedelta(seconds=30)
"""How long a dispatch waits for a database that is away."""
DISPATCHER: Final = Principal("dispatch")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Denied:
    """The app's policy does not let this agent have the event; nothing was created."""


Dispatched = Admitted | Duplicate | Healed
"""Each has the `run_id`: of a new run, of the one that the event has already, of the one that it got back."""


class Engine:
    """What `running(app)` hands out; valid until the worker under it drains."""

    def __init__(
        self,
        app: App,
        database: Database,
        metrics: Metrics,
        *,
        idempotency_ttl: timedelta,
        admitted: Callable[[], None] = lambda: None,
        failure: Callable[[], Exception | None] = lambda: None,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._agents = dict(app.agents)
        self._channels = dict(app.channels)
        self._database = database
        self._metrics = metrics
        self._admission = Admission(database, idempotency_ttl=idempotency_ttl, patience=patience)
        self._authorizer = Authorizer(app.conversations, metrics)
        self._admitted = admitted
        self._failure = failure
        self._stopped = False

    def stop(self) -> None:
        """From here on every call raises EngineStopped; said before the worker drains."""
        self._stopped = True

    def channel(self, channel: Channel) -> ChannelDoor:
        """The door for events of `channel`, which must be the registered object. Raises NotTheRegisteredChannel."""
        return ChannelDoor(self, channel)

    async def dispatch(
        self,
        agent: str,
        text: str = "",
        *,
        event_id: str | None = None,
        payload: Any = None,
        principal: Principal = DISPATCHER,
    ) -> Dispatched:
        """Queue one unbound run; the same `event_id` again is the same run. `payload` is JSON and binds nothing.

        The run has nobody to `reply` to. Raises UnknownAgent, TooLarge, EventRefused (another text under this id), and
        StoreAway or EngineStopped, upon which the same call may be made again.
        """
        job = str(new_uuid7()) if event_id is None else event_id
        event = dispatched(job, text, payload, principal, datetime.now(UTC))
        return await self._admit(event, unbound_candidate(self.agent(agent), event, new_uuid7(), None))

    async def idle(self) -> None:
        """Return when no run or delivery of this app is due or under way; whatever ended the worker is raised.

        What waits for a later time (a retry's backoff, a rate limit), for a person or for a pause is not due.
        """
        while True:
            self._require_running()
            if (failure := self._failure()) is not None:
                raise failure
            try:
                row = await self._database.fetchrow(READ_DUE_WORK, [*self._agents], [*self._channels])
            except Exception as error:
                if not is_retryable(error):
                    raise
            else:
                if row is not None and not any(row):
                    return
            await asyncio.sleep(ASK_EVERY_SECONDS)

    def agent(self, name: str) -> Agent:
        """The registered agent. Raises UnknownAgent."""
        if name not in self._agents:
            raise UnknownAgent(name)
        return self._agents[name]

    def _require_running(self) -> None:
        if self._stopped:
            raise EngineStopped

    def _registered(self, channel: Channel) -> str:
        for name, registered in self._channels.items():
            if registered is channel:
                return name
        raise NotTheRegisteredChannel(type(channel).__name__)

    async def _bind(self, agent: Agent, event: Event) -> Dispatched | Denied:
        """Bind and admit an event that a `ChannelDoor` answers for."""
        self._require_running()
        answers = await self._authorizer.decide_all([Question(event, (agent,))])
        if isinstance(answers[0], Undecided):
            raise PolicyUnavailable
        if not answers[0].allowed:
            self._count(event, "denied")
            return Denied()
        return await self._admit(event, candidate(agent, event, new_uuid7(), None))

    async def _admit(self, event: Event, run: Candidate) -> Dispatched:
        self._require_running()
        [outcome] = await self._admission.admit([run])
        match outcome:
            case Admitted() | Healed() | Duplicate():
                self._count(event, type(outcome).__name__.lower())
                log.info("event.dispatched", event_id=event.event_id, run_id=str(outcome.run_id))
                self._admitted()
                return outcome
            case Mismatch():
                raise self._refused(event, Reason.PAYLOAD_MISMATCH)
            case Unhealable():
                raise self._refused(event, Reason.UNHEALABLE)
            case error:
                if is_data_error(error):
                    raise self._refused(event, Reason.REFUSED_BY_STORE) from error
                if is_retryable(error):
                    raise StoreAway from error
                raise error

    def _refused(self, event: Event, reason: Reason) -> EventRefused:
        self._count(event, reason.value)
        log.warning("event.refused", event_id=event.event_id, reason=reason.value)
        return EventRefused(reason, event.event_id)

    def _count(self, event: Event, outcome: str) -> None:
        self._metrics.events.labels(event.channel, outcome).inc()


class ChannelDoor:
    """Where one registered channel brings its events in, from its own process."""

    def __init__(self, engine: Engine, channel: Channel) -> None:
        """Raises NotTheRegisteredChannel."""
        self._engine = engine
        self._channel = engine._registered(channel)

    async def dispatch_conversation(
        self, agent: str, event: Event, *, concurrency_key: str | None = None
    ) -> Dispatched | Denied:
        """Queue the run of `agent` for `event`, bound to its conversation; the event's id is its idempotency key.

        The adapter has authenticated whoever sent it. The engine derives the concurrency key, the identity's canonical
        form: leave it out. Raises UnknownAgent, NoMemory, ForeignEvent, NotSubscribed, ConcurrencyKeyDiffers, TooLarge,
        EventRefused; and PolicyUnavailable, StoreAway, EngineStopped, upon which the same call may be made again.
        """
        bound = self._engine.agent(agent)
        if bound.memory_key is None:
            raise NoMemory(agent)
        if event.channel != self._channel:
            raise ForeignEvent(self._channel, event.channel)
        proven = as_read(event)
        if not bound.listens_to(proven):
            raise NotSubscribed(agent, self._channel, event.kind)
        derived = concurrency_key_of(identity_of(bound.memory_key, proven))
        if concurrency_key is not None and concurrency_key != derived:
            raise ConcurrencyKeyDiffers(derived)
        return await self._engine._bind(bound, proven)
