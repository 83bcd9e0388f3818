"""The turns role: claims, runs and settles turns under one worker session, and recovers those of dead workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from workers.agents.errors import UnknownChannel
from workers.app import App
from workers.delivery.loops.outbox import Outbox
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.postgres.hints import Hints, Wake
from workers.roles.settings import Settings
from workers.telemetry.metrics import Metrics
from workers.turns.claim import Claims
from workers.turns.execution import Execution
from workers.turns.journal import StepJournal
from workers.turns.loop import TurnLoop
from workers.turns.pauses import Pauses
from workers.turns.policy import Caps
from workers.turns.recovery import Recovered, Recovery
from workers.turns.session import WorkerSession
from workers.turns.settle import Settlements
from workers.turns.stopped import end_stopped_clients

READY: Final = "ready"
CANCEL: Final = "cancel"
PAUSES: Final = "pauses"
RECOVER_EVERY: Final = timedelta(seconds=1)

log = structlog.get_logger(__name__)


class TurnsRole:
    """Built anew for each worker session; `run()` until cancelled, `drain()` and `close()` before the session ends."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        database: Database,
        session: WorkerSession,
        outbox: Outbox,
        hints: Hints,
        metrics: Metrics,
        *,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._metrics = metrics
        self._journal = StepJournal(
            database,
            outbox.offer,
            observe=metrics.batches("journal"),
            finished=lambda agent, kind: metrics.steps.labels(agent, kind).inc(),
            handed_off=lambda: hints.hint(READY),
            idempotency_ttl=settings.idempotency_ttl,
            reached=reached,
        )
        wake = hints.waiter(READY, CANCEL)
        self._settlements = Settlements(
            database,
            recall_wait=settings.recall_wait,
            next_ready=wake.set,
            observe=metrics.batches("settlement"),
            reached=reached,
        )
        self._pauses = Pauses(database, hints.waiter(PAUSES), changed=lambda: hints.hint(READY))
        caps = Caps.for_slots(settings.slots, len(app.agents))
        self.loop = TurnLoop(
            database,
            app.agents,
            session,
            Claims(
                database,
                app.agents,
                app.conversations,
                caps,
                recall_wait=settings.recall_wait,
                paused=lambda: self._pauses.now,
                reached=reached,
            ),
            Execution(
                database,
                app.agents,
                app.conversations,
                self._journal,
                partial(_split, app),
                slots=settings.slots,
            ),
            self._settlements,
            wake,
            metrics,
            poll_every=settings.poll_every,
        )
        self._recovery = Recovery(
            database,
            app.agents,
            lease_for=settings.lease_for,
            recall_wait=settings.recall_wait,
            recovered=self._recovered,
        )
        self._database = database
        self._hints = hints
        self._recovery_wake = Wake()

    async def run(self) -> None:
        """Run turns and recover others' until cancelled, or until the session is lost."""
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._recover(), name="recovery"),
                tasks.create_task(self._pauses.run(), name="pauses"),
            ]
            await self._pauses.known()
            await self.loop.run()
            for task in beside:
                task.cancel()

    async def drain(self, grace: timedelta, at_most: timedelta) -> int:
        """Finish turns within `grace`, release the others within `at_most`; how many agents did not let go."""
        return await self.loop.drain(grace, at_most)

    async def close(self) -> None:
        """Wait for what is being committed; without a database that takes for ever."""
        await self._settlements.close()
        await self._journal.close()

    async def abandon(self, at_most: timedelta) -> int:
        """The session is lost: cancel every agent and write nothing more; how many agents did not let go."""
        self.loop.stop_all("lost")
        return await self.loop.let_go(at_most)

    async def _recover(self) -> None:
        while True:
            try:
                await end_stopped_clients(self._database)
                await self._recovery.run_once()
            except Exception as error:
                if not is_retryable(error):
                    raise
                log.warning("recovery.waiting", error=type(error).__name__)
            await self._recovery_wake.wait(RECOVER_EVERY)

    def _recovered(self, what: Recovered) -> None:
        self._metrics.takeovers.inc(what.dead_sessions)
        self._hints.hint(READY)


def _split(app: App, channel: str, text: str) -> Sequence[str]:
    if channel not in app.channels:
        raise UnknownChannel(channel)
    return app.channels[channel].split(text)
