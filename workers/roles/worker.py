"""One worker process: the roles it was asked for, started in order, watched, and drained.

    start:  http (health first) -> kafka producer and consumers -> worker session -> turns and delivery under it
    lost session: agents cancelled, nothing more written, a new session and new roles in the same process
    drain:  no new records, claims or sends -> turns finish or are released -> receipts -> session ended -> offsets

A part that fails for good ends the process with an error; an outage of Kafka or Postgres does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from schemas.envelope import SealedEvent
from schemas.errors import ParleyError
from workers.admission.service import Admission
from workers.api.operators import OperatorTokens, TokenFileProblem
from workers.api.parts import ApiParts
from workers.api.server import ApiServer
from workers.api.service import create_api
from workers.app import App
from workers.channels.web import WebChannel
from workers.delivery.loops.outbox import Outbox
from workers.engine.engine import Engine
from workers.intake.authorizing import Authorizer
from workers.intake.dead_letters import DeadLetters
from workers.intake.service import Intake
from workers.kafka.consumer import Batch, RecordConsumer
from workers.kafka.lasting import LastingConsumer
from workers.kafka.producer import RecordProducer
from workers.operations.sweeper import Sweeper
from workers.postgres.database import Database
from workers.postgres.hints import Hints
from workers.roles.draining import STOP_WITHIN, Deadline
from workers.roles.pools import require_one_database
from workers.roles.sampling import Sampler
from workers.roles.sessions import Sessions
from workers.roles.settings import Settings
from workers.roles.turns_role import READY
from workers.telemetry.health import Health
from workers.telemetry.metrics import Metrics

PROBE_GIVES_UP_AFTER = timedelta(seconds=2)

log = structlog.get_logger(__name__)


class PartFailed(ParleyError):
    """A part of the worker ended for good; `part` names it, the cause is chained."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


class Worker:
    """Runs an App's roles in this event loop. `start()`, `run_until_stopped()`, `drain()`."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        metrics: Metrics | None = None,
        *,
        database: Database | None = None,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`database` is a pool of the caller's, which is used and left open; without one the worker opens its own."""
        self.app = app
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.health = Health()
        self.http_port: int | None = None
        self._given = database
        self._reached = reached
        self._hints = Hints(settings.database_url)
        self._producer = RecordProducer(settings.kafka)
        self._outbox = Outbox(self._producer, settings.kafka.deliveries_topic)
        self.metrics.commands_dropped.set_function(lambda: self._outbox.dropped)
        self._consumers: dict[str, LastingConsumer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stop = asyncio.Event()
        self._failed: PartFailed | None = None
        self._drained: asyncio.Task[None] | None = None
        self._sessions: Sessions | None = None

    async def start(self) -> None:
        """Start everything that was asked for; waits for Kafka and Postgres. Raises Misconfigured leaves."""
        settings, roles = self.settings, self.settings.roles
        self._database = self._given or await Database.open(
            settings.database_url, min_size=0, max_size=settings.pool_size, application_name="parley"
        )
        self.engine = Engine(
            self.app,
            self._database,
            self.metrics,
            idempotency_ttl=settings.idempotency_ttl,
            admitted=lambda: self._hints.hint(READY),
            failure=lambda: self._failed,
        )
        for channel in self.app.channels.values():
            if isinstance(channel, WebChannel):
                channel.bind(self._database, self._hints)
            await channel.open()
        # One connection for the readiness probe, so that a busy pool is not taken for a database that is away.
        self._probe = await Database.open(
            settings.database_url,
            min_size=0,
            max_size=1,
            application_name="parley-probe",
            acquire_timeout=PROBE_GIVES_UP_AFTER,
        )
        if self._given is not None:
            await require_one_database(self._given, self._probe)
        self._register_probes()
        await self._start_http()
        self._begin("hints", self._hints.run())
        if roles & {"intake", "turns", "api"}:
            self._begin("producer", self._producer.start(*self._topics_written()))
        if "intake" in roles:
            self._consumers["intake"] = self._consumer(settings.kafka.events_topic, "intake")
            self._begin("intake", self._run_intake(self._consumers["intake"]))
        if roles & {"turns", "delivery"}:
            self._sessions = Sessions(
                self.app,
                settings,
                self._database,
                self._outbox,
                self._hints,
                self.metrics,
                commands=self._commands,
                stop=self._stop,
                reached=self._reached,
            )
            self._begin("session", self._sessions.run())
        if "turns" in roles:
            self._begin("outbox", self._outbox.run())
        if "sweeper" in roles:
            pruned = self.metrics.pruned_rows
            memory = self.app.conversations
            sweeper = Sweeper(
                self._database,
                settings.retention,
                limits=None if memory is None else memory.limits,
                pruned=lambda table, rows: pruned.labels(table).inc(rows),
            )
            self._begin("sweeper", sweeper.run())
        self._begin("sampling", Sampler(self._database, self.metrics, self._consumers).run())
        log.info("worker.started", app=self.app.name, roles=sorted(roles), http_port=self.http_port)

    async def run_until_stopped(self) -> None:
        """Return after a drain; raises PartFailed where a part ended for good."""
        await self._stop.wait()
        await self.drain()
        if self._failed is not None:
            raise self._failed

    async def drain(self) -> None:
        """Stop taking work, finish or release what is owned, leave; safe to call twice."""
        if self._drained is None:
            self._drained = asyncio.create_task(self._drain(), name="drain")
        self._stop.set()
        await self._drained

    async def _drain(self) -> None:
        """Everything under one deadline, the grace period; what cannot be waited for is found by others."""
        deadline, stuck = Deadline(self.settings.grace), 0
        log.info("worker.draining", grace_s=self.settings.grace.total_seconds())
        for consumer in self._consumers.values():
            consumer.drain()
        if self._sessions is not None:
            stuck = await self._sessions.drain(deadline)
        self._outbox.stop()
        ending = [self._tasks[name] for name in ("intake", "outbox") if name in self._tasks]
        if ending:
            await asyncio.wait(ending, timeout=min(STOP_WITHIN, deadline.left).total_seconds())
        if self._sessions is not None:
            await self._sessions.end(deadline)
        for name, task in self._tasks.items():
            if not task.done():
                task.cancel(name)
        await deadline.bounded("parts", asyncio.gather(*self._tasks.values(), return_exceptions=True))
        leaving = [consumer.stop() for consumer in self._consumers.values()]
        await deadline.bounded("consumers", asyncio.gather(*leaving, return_exceptions=True))
        await deadline.bounded("producer", self._producer.stop())
        await deadline.bounded("http", self._http.stop())
        for channel in self.app.channels.values():
            await deadline.bounded("channel", channel.close())
        await self._probe.close(deadline.left)
        if self._given is None:
            await self._database.close(deadline.left)
        log.info("worker.stopped", agents_stuck=stuck)

    async def _start_http(self) -> None:
        serves_channels = "api" in self.settings.roles
        parts = ApiParts(
            app_name=self.app.name,
            channels=self.app.channels if serves_channels else {},
            publish=self._publish,
            database=self._database,
            hints=self._hints,
            health=self.health,
            metrics=self.metrics,
            operators=self._operators() if serves_channels else None,
            retention=self.settings.retention,
            limits=self.app.conversations.limits if self.app.conversations is not None else None,
        )
        self._http = ApiServer(create_api(parts))
        self.http_port = await self._http.start(self.settings.http_host, self.settings.http_port)

    def _operators(self) -> OperatorTokens | None:
        path = self.settings.operator_tokens_file
        return None if path is None else OperatorTokens(path, on_problem=_tell_of_tokens)

    async def _publish(self, sealed: SealedEvent) -> None:
        await self._producer.send(
            self.settings.kafka.events_topic, sealed.key, sealed.value, list(sealed.headers)
        )

    def _topics_written(self) -> list[str]:
        kafka, roles = self.settings.kafka, self.settings.roles
        written = {"intake": kafka.dead_topic, "turns": kafka.deliveries_topic, "api": kafka.events_topic}
        return [topic for role, topic in written.items() if role in roles]

    def _consumer(self, topic: str, role: str) -> LastingConsumer:
        skipped = self.metrics.offsets_skipped.labels(topic).inc
        return LastingConsumer(lambda: RecordConsumer(self.settings.kafka, topic, role, on_skipped=skipped))

    def _commands(self) -> LastingConsumer:
        if "delivery" not in self._consumers:
            self._consumers["delivery"] = self._consumer(self.settings.kafka.deliveries_topic, "delivery")
        return self._consumers["delivery"]

    async def _run_intake(self, consumer: LastingConsumer) -> None:
        admission = Admission(
            self._database, idempotency_ttl=self.settings.idempotency_ttl, reached=self._reached
        )
        intake = Intake(
            self.app.agents,
            self.app.channels,
            admission,
            Authorizer(self.app.conversations, self.metrics),
            DeadLetters(self._producer, self.settings.kafka.dead_topic, self.metrics),
            self.metrics,
            event_age_limit=self.settings.event_age_limit,
            admitted=lambda: self._hints.hint(READY),
        )

        async def handle(batch: Batch) -> None:
            await intake.handle(batch.records, consumer.ack)
            self._reached("intake.acknowledged")

        async with asyncio.TaskGroup() as tasks:
            retries = tasks.create_task(intake.run_retries(consumer.ack), name="policy-retries")
            await consumer.run(handle)
            retries.cancel()

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        failed = PartFailed(name)
        failed.__cause__ = _own_error(task.exception())
        log.error("worker.part_failed", part=name, error=repr(failed.__cause__))
        self._failed = self._failed or failed
        self._stop.set()

    def _register_probes(self) -> None:
        self.health.register("parts", lambda: self._failed is None, affects="live")
        self.health.register("database", self._database_answers)
        for role in ("intake", "delivery"):
            if role in self.settings.roles:
                self.health.register(f"kafka_{role}", partial(self._joined, role))
        if not self.settings.roles & {"intake", "delivery"} and self.settings.roles & {"turns", "api"}:
            self.health.register("kafka_producer", self._producer.broker_answers)
        if self.settings.roles & {"turns", "delivery"}:
            self.health.register("lease", lambda: self._sessions is not None and self._sessions.fresh)
        self.health.register("accepting", lambda: self._drained is None)

    async def _database_answers(self) -> bool:
        return await self._probe.fetchrow("select 1") is not None

    def _joined(self, role: str) -> bool:
        consumer = self._consumers.get(role)
        return consumer is not None and consumer.joined


def _own_error(error: BaseException | None) -> BaseException | None:
    """What a part failed with: a task group that wraps a single error says nothing of its own."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _tell_of_tokens(problem: TokenFileProblem) -> None:
    log.error("operators.file_unusable", path=str(problem.path), line=problem.line, problem=problem.problem)
