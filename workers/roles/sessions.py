"""What needs a worker session: turns and delivery, under one session after another.

opened -> roles run under it -> lost: agents cancelled, nothing more written, the next one opened
                             -> stopped: the roles drain, and the session ends after them
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import structlog

from workers.app import App
from workers.delivery.loops.outbox import Outbox
from workers.kafka.lasting import LastingConsumer
from workers.postgres.database import Database
from workers.postgres.hints import Hints
from workers.roles.delivery_role import DeliveryRole
from workers.roles.draining import STOP_WITHIN, Deadline, hear
from workers.roles.settings import Settings
from workers.roles.turns_role import TurnsRole
from workers.telemetry.metrics import Metrics
from workers.turns.session import WorkerSession

log = structlog.get_logger(__name__)


class Sessions:
    """The present session of one worker and the roles under it; None where there is none (yet)."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        database: Database,
        outbox: Outbox,
        hints: Hints,
        metrics: Metrics,
        *,
        commands: Callable[[], LastingConsumer],
        stop: asyncio.Event,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`commands` gives the consumer of delivery commands, the same one for every session."""
        self._app = app
        self._settings = settings
        self._database = database
        self._outbox = outbox
        self._hints = hints
        self._metrics = metrics
        self._commands = commands
        self._stop = stop
        self._reached = reached
        self.present: WorkerSession | None = None
        self.turns: TurnsRole | None = None
        self.delivery: DeliveryRole | None = None

    @property
    def fresh(self) -> bool:
        """Whether there is a session whose lease runs."""
        return self.present is not None and self.present.fresh

    async def run(self) -> None:
        """Until told to stop; a lost session is replaced by a fresh one. Raises what a role fails with for good."""
        while not self._stop.is_set():
            session = WorkerSession(
                self._settings.database_url,
                lease_for=self._settings.lease_for,
                agents=list(self._app.agents) if "turns" in self._settings.roles else (),
                renewed=self._metrics.lease_renewals.labels("renewed").inc,
            )
            try:
                await session.start(within=timedelta(days=1))
                self.present = session
                await self._until_lost(session, self._roles_under(session))
            except asyncio.CancelledError:
                await session.stop_renewing()
                raise
            if session.lost.is_set():
                await self._give_up(session)
        # A drain goes on renewing until the last turn is settled, and then calls `end`.

    async def drain(self, deadline: Deadline) -> int:
        """Claim and send nothing more, let turns finish or go, write their receipts; how many agents did not let go."""
        stuck = 0
        if self.delivery is not None:
            self.delivery.begin_drain()
        if self.turns is not None:
            stuck = await self.turns.drain(deadline.left_to_work, deadline.reserve / 2)
            await deadline.bounded("turns", self.turns.close(), STOP_WITHIN)
        if self.delivery is not None:
            await deadline.bounded("delivery", self.delivery.finish(), deadline.left_to_work)
        return stuck

    async def end(self, deadline: Deadline) -> None:
        """End the present session, so that others need not wait for its lease."""
        if self.present is not None:
            await deadline.bounded("session", self.present.end(self._database), STOP_WITHIN)

    async def _give_up(self, session: WorkerSession) -> None:
        await session.stop_renewing()
        self._metrics.lease_renewals.labels("lost").inc()
        deaf = await self.turns.abandon(STOP_WITHIN) if self.turns is not None else 0
        if deaf:
            log.warning("session.agents_left_behind", session_id=str(session.id), agents=deaf)

    def _roles_under(self, session: WorkerSession) -> list[Coroutine[Any, Any, None]]:
        running: list[Coroutine[Any, Any, None]] = []
        if "turns" in self._settings.roles:
            self.turns = TurnsRole(
                self._app,
                self._settings,
                self._database,
                session,
                self._outbox,
                self._hints,
                self._metrics,
                reached=self._reached,
            )
            running.append(self.turns.run())
        if "delivery" in self._settings.roles:
            self.delivery = DeliveryRole(
                self._app,
                self._settings,
                self._database,
                session,
                self._hints,
                self._metrics,
                reached=self._reached,
            )
            running.append(self.delivery.run(self._commands()))
        return running

    async def _until_lost(self, session: WorkerSession, roles: list[Coroutine[Any, Any, None]]) -> None:
        """Run the roles until the session is lost; a role that fails for good raises."""
        tasks = [asyncio.create_task(role) for role in roles]
        lost = asyncio.create_task(session.lost.wait())
        try:
            while not session.lost.is_set() and not self._stop.is_set():
                done, _ = await asyncio.wait({*tasks, lost}, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {lost}:
                    task.result()
                if all(task.done() for task in tasks):
                    break
                tasks = [task for task in tasks if not task.done()]
            if self._stop.is_set():
                await asyncio.gather(*tasks)
        finally:
            for task in [*tasks, lost]:
                task.cancel()
            ended, deaf = await asyncio.wait([*tasks, lost], timeout=STOP_WITHIN.total_seconds())
            for task in ended:
                hear(task)
            if deaf:
                log.error("session.roles_left_behind", session_id=str(session.id), roles=len(deaf))
