"""The delivery role: takes commands from the delivery topic, sends, and reconciles what is uncertain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from workers.app import App
from workers.delivery.loops.consumer import DeliveryConsumer
from workers.delivery.loops.reconciler import Reconciler
from workers.delivery.loops.sender import Sender, SendLimits
from workers.delivery.receipts import Receipts
from workers.kafka.lasting import LastingConsumer
from workers.postgres.database import Database
from workers.postgres.hints import Hints
from workers.roles.settings import Settings
from workers.roles.turns_role import READY
from workers.telemetry.metrics import Metrics
from workers.turns.session import WorkerSession
from workers.turns.store import SessionGone


class DeliveryRole:
    """Built anew for each worker session; the consumer outlives it."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        database: Database,
        session: WorkerSession,
        hints: Hints,
        metrics: Metrics,
        *,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        limits = SendLimits(
            concurrency=settings.sends,
            lease_for=settings.lease_for,
            margin=min(timedelta(seconds=3), settings.lease_for / 4),
        )
        self._receipts = Receipts(database, metrics, lanes_ready=lambda: hints.hint(READY), reached=reached)
        self.sender = Sender(
            database, app.channels, session.id, self._receipts, metrics, limits=limits, reached=reached
        )
        self._reconciler = Reconciler(
            database,
            app.channels,
            session.id,
            self.sender,
            self._receipts,
            metrics,
            sending=limits,
            reached=reached,
        )
        self._commands = DeliveryConsumer(self.sender, metrics)
        self._session = session
        self._sending: asyncio.Task[None] | None = None

    async def run(self, consumer: LastingConsumer) -> None:
        """Send and reconcile until `begin_drain()`, cancellation, or the loss of the session; batches are hints."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._sending = tasks.create_task(self.sender.run(), name="sender")
                tasks.create_task(self._reconciler.run(), name="reconciler")
                tasks.create_task(consumer.run(self._commands.handle), name="delivery-commands")
        except* SessionGone:
            self._session.lost.set()

    def begin_drain(self) -> None:
        """Start no send and no look-up any more; those under way finish."""
        self.sender.stop()
        self._reconciler.stop()

    async def finish(self) -> None:
        """After `begin_drain()`: wait for the sends under way and for their receipts."""
        if self._sending is not None:
            await asyncio.wait({self._sending})
        await self._receipts.close()
