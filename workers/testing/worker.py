"""A worker that can be killed in the middle of a step: nothing is settled, released or ended, as with kill -9."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from workers.app import App
from workers.kafka.consumer import RecordConsumer
from workers.kafka.lasting import LastingConsumer
from workers.kafka.record import Record
from workers.roles.settings import Settings
from workers.roles.worker import Worker

SENT_AS: Final = "parley-test-send"
"""The header that says which `send` of the test a record comes from; it is not signed and means nothing else."""
AFTER_STEP: Final = "journal.committed"


class MortalWorker(Worker):
    """`crash_after` lets so many journal commits pass and dies after the next; `dead` is set when it has."""

    def __init__(self, app: App, settings: Settings, acknowledged: set[bytes]) -> None:
        super().__init__(app, settings, reached=self._at)
        self.dead = asyncio.Event()
        self._acknowledged = acknowledged
        self._commits_left: int | None = None
        self._doomed: list[asyncio.Task[None]] = []

    @property
    def session_id(self) -> UUID | None:
        """The session that the worker holds, or held when it died."""
        present = self._sessions.present if self._sessions is not None else None
        return present.id if present is not None else None

    @property
    def condition(self) -> str:
        """In words: whether it runs, is dead, or stopped by itself."""
        if self.dead.is_set():
            return "the worker is down"
        return f"the worker stopped: {self._failed.__cause__!r}" if self._failed else "the worker runs"

    def crash_after(self, steps: int) -> None:
        """Die right after the commit of the step `steps`, counted from now."""
        self._commits_left = steps

    async def bury(self) -> None:
        """Give back what a dead process gives back by itself: sockets, connections, its place in the groups."""
        await asyncio.gather(*self._doomed, return_exceptions=True)
        for consumer in self._consumers.values():
            await consumer.stop()
        await self._producer.stop()
        await self._http.stop()
        await self._database.close()

    def _at(self, point: str) -> None:
        if point != AFTER_STEP or self._commits_left is None:
            return
        self._commits_left -= 1
        if self._commits_left == 0:
            self._die()
            raise asyncio.CancelledError(point)

    def _die(self) -> None:
        self._doomed = list(self._tasks.values())
        turns = self._sessions.turns if self._sessions is not None else None
        if turns is not None:
            self._doomed += turns.loop._tasks
            for commits in (turns._journal._queue, turns._settlements._queue):
                self._doomed += commits._tasks
        delivery = self._sessions.delivery if self._sessions is not None else None
        if delivery is not None:
            self._doomed += delivery._receipts._queue._tasks
        for task in self._doomed:
            task.cancel("killed")
        self.dead.set()

    def _consumer(self, topic: str, role: str) -> LastingConsumer:
        def noting() -> RecordConsumer:
            consumer = _Noting(self.settings.kafka, topic, role)
            consumer.acknowledged = self._acknowledged
            return consumer

        return LastingConsumer(noting)


class _Noting(RecordConsumer):
    """Notes which of the test's events were handled to their end, whatever that was."""

    acknowledged: set[bytes]

    def ack(self, records: Iterable[Record]) -> None:
        handled = list(records)
        super().ack(handled)
        self.acknowledged.update(
            value for record in handled for name, value in record.headers if name == SENT_AS and value
        )
