"""`TestApp(app)`: a whole worker on real Postgres and a real consumer, in the test's own event loop.

Events are really signed and published, channels are lab channels that keep what they receive, and a crash leaves
behind what a killed process leaves behind. Services start with the first TestApp of a test run and are shared.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self
from uuid import UUID

from schemas.event import Event
from schemas.identity import DIRECT, Principal
from workers.app import App
from workers.channels.lab import LabChannel
from workers.channels.port import Channel
from workers.channels.sealing import seal
from workers.engine.engine import DISPATCHER, ChannelDoor, Dispatched, Engine
from workers.kafka.producer import RecordProducer
from workers.postgres.database import Database
from workers.postgres.sql import load
from workers.roles.settings import Settings
from workers.testing.clock import TestClock
from workers.testing.services import place
from workers.testing.twins import with_lab_channels
from workers.testing.waiting import NotInTime, wait_for
from workers.testing.worker import SENT_AS, MortalWorker

READ_OPEN_WORK = load(__package__, "read_open_work")
READ_RUNS = load(__package__, "read_runs")
READ_STEPS = load(__package__, "read_steps")

PATIENCE: Final = timedelta(seconds=30)
_GRACE: Final = timedelta(seconds=2)
_MOMENT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Run:
    """One run as the database has it."""

    id: UUID
    agent: str
    event_id: str
    status: str
    reason: str | None
    crashes: int
    attempts: int
    retries: int


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a run's journal; `epoch` says in which life of the run it was written."""

    step: int
    call: int
    kind: str
    name: str
    state: str
    epoch: int


class TestApp:
    """An app under test: `async with TestApp(app) as chat`. Raises EmbeddedNotInstalled, InvalidApp."""

    __test__ = False

    def __init__(self, app: App, *, patience: timedelta = PATIENCE) -> None:
        self._app, self.channels = with_lab_channels(app)
        self._twins = [(channel, self.channels[name]) for name, channel in app.channels.items()]
        self._patience = patience
        self._stack = AsyncExitStack()
        self._sent: set[bytes] = set()
        self._acknowledged: set[bytes] = set()
        self._crashed: list[UUID] = []
        self._lives = 0

    async def __aenter__(self) -> Self:
        try:
            where = await self._stack.enter_async_context(place())
            self._settings = Settings(
                where.database_url,
                where.kafka,
                roles=frozenset({"intake", "turns", "delivery"}),
                grace=_GRACE,
                http_port=0,
            )
            self.database = await Database.open(
                where.database_url, max_size=2, application_name="parley-test"
            )
            self._stack.push_async_callback(self.database.close)
            self.clock = TestClock(self.database, lambda: self._crashed)
            self._producer = RecordProducer(where.kafka)
            self._stack.push_async_callback(self._producer.stop)
            await self._producer.start(where.kafka.events_topic)
            await self._start_worker()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._stack:
            await (self._worker.bury() if self._worker.dead.is_set() else self._worker.drain())

    async def send(
        self,
        text: str,
        *,
        user: str = "user",
        chat: str = "chat",
        channel: str | None = None,
        event_id: str | None = None,
        thread: str | None = None,
        account: str = "account",
        audience: str = DIRECT,
        kind: str = "message",
    ) -> str:
        """Publish a signed event and return its id; `channel` is the app's first unless given."""
        lab = self._lab(channel)
        event = Event(
            event_id=event_id or f"event-{uuid.uuid4().hex[:12]}",
            channel=lab.name,
            account=account,
            chat=chat,
            thread=thread,
            audience=audience,
            kind=kind,
            principal=Principal(user),
            text=text,
            occurred_at=await self.clock.now(),
        )
        sealed = seal(event, lab.keys, datetime.now(UTC))
        mark = uuid.uuid4().bytes
        self._sent.add(mark)
        await self._producer.send(
            self._settings.kafka.events_topic, sealed.key, sealed.value, [*sealed.headers, (SENT_AS, mark)]
        )
        return event.event_id

    @property
    def engine(self) -> Engine:
        """The engine of the worker that lives now; its channels are the lab channels."""
        return self._worker.engine

    def channel(self, channel: Channel) -> ChannelDoor:
        """As `Engine.channel`, for a channel of your app: the lab channel in its place is the one that is opened."""
        twin = next((twin for own, twin in self._twins if own is channel), None)
        return self.engine.channel(twin or channel)

    async def dispatch(
        self,
        agent: str,
        text: str = "",
        *,
        event_id: str | None = None,
        payload: Any = None,
        principal: Principal = DISPATCHER,
    ) -> Dispatched:
        """As `Engine.dispatch`."""
        return await self.engine.dispatch(
            agent, text, event_id=event_id, payload=payload, principal=principal
        )

    async def idle(self) -> None:
        """As `Engine.idle`, once every event that was sent has been handled. Raises NotInTime."""

        async def all_handled() -> bool:
            return self._sent <= self._acknowledged

        await wait_for("every event handled", all_handled, self._patience, self._state)
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                await self.engine.idle()
        except TimeoutError:
            raise NotInTime(
                f"idle: not within {self._patience.total_seconds():g} s; {await self._state()}"
            ) from None

    async def replies(
        self, *, chat: str = "chat", channel: str | None = None, at_least: int = 1
    ) -> list[str]:
        """What the chat has received, oldest first, once it is `at_least` so much. Raises NotInTime."""
        lab = self._lab(channel)

        async def received() -> list[str]:
            return [message.text for message in lab.messages if message.address.partition("/")[0] == chat]

        async def enough() -> bool:
            return len(await received()) >= at_least

        await wait_for(
            f"{at_least} replies in chat {chat!r} of {lab.name}", enough, self._patience, self._state
        )
        return await received()

    async def settled(self) -> None:
        """Wait until every event was handled, every run has ended and every delivery is final. Raises NotInTime."""

        async def nothing_open() -> bool:
            if not self._sent <= self._acknowledged:
                return False
            row = await self.database.fetchrow(READ_OPEN_WORK)
            return row is not None and row["runs"] == 0 and row["deliveries"] == 0

        await wait_for("everything settled", nothing_open, self._patience, self._state)

    async def runs(self) -> list[Run]:
        """Every run, in the order of admission."""
        return [Run(*row) for row in await self.database.fetch(READ_RUNS)]

    async def steps(self, run: Run) -> list[Step]:
        """The run's journal."""
        return [Step(*row) for row in await self.database.fetch(READ_STEPS, run.id)]

    def crash_after_step(self, n: int = 1) -> None:
        """Kill the worker right after the commit of the `n`th step that is journalled from now on.

        A model's answer, a tool's result, a `turn.step` and a reply are a step each; a tool that is not repeatable
        has two, since its beginning is journalled too. What comes back from the journal is no step.
        """
        if n < 1:
            raise ValueError("steps are counted from 1")
        self._worker.crash_after(n)

    async def restart(self) -> None:
        """Wait for the crash, let the dead worker's lease run out on the test's clock, and start a new worker."""
        dead = self._worker

        async def has_died() -> bool:
            return dead.dead.is_set()

        await wait_for("the worker crashed", has_died, self._patience, self._state)
        await dead.bury()
        if dead.session_id is not None:
            self._crashed.append(dead.session_id)
        await self.clock.advance(self._settings.lease_for + _MOMENT)
        await self._start_worker()

    async def _start_worker(self) -> None:
        # The embedded broker holds the place of a member that left for seconds, so each life joins groups of its own.
        # It reads every event again, as after a lost commit, and admission knows them.
        self._lives += 1
        kafka = self._settings.kafka
        kafka = replace(kafka, group_prefix=f"{kafka.group_prefix}.{self._lives}")
        self._worker = MortalWorker(self._app, replace(self._settings, kafka=kafka), self._acknowledged)
        await self._worker.start()

        async def is_ready() -> bool:
            return all((await self._worker.health.ready()).values())

        await wait_for("the worker is ready", is_ready, self._patience, self._state)

    def _lab(self, name: str | None) -> LabChannel:
        if name is None:
            name = next(iter(self.channels))
        if name not in self.channels:
            raise ValueError(f"the app has no channel {name!r}; it has {', '.join(self.channels)}")
        return self.channels[name]

    async def _state(self) -> str:
        waiting = len(self._sent - self._acknowledged)
        runs = [
            f"{run.agent}: {run.status}" + (f" ({run.reason})" if run.reason else "")
            for run in await self.runs()
        ]
        return f"{self._worker.condition}, {waiting} events not handled, runs: {'; '.join(runs) or 'none'}"
