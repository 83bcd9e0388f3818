"""A consumer that outlasts its client: when a Kafka client dies for good, another takes its place in the group.

What the dead one had not acknowledged is delivered again to its successor, as after a crash of the process.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta

from workers.kafka.consumer import Batch, RecordConsumer
from workers.kafka.errors import ConsumerDied
from workers.kafka.record import Record

log = logging.getLogger(__name__)

PAUSE = timedelta(seconds=1)


class LastingConsumer:
    """One membership over as many client lives as it takes; `make` makes the client of the next life."""

    def __init__(self, make: Callable[[], RecordConsumer], pause: timedelta = PAUSE) -> None:
        self._make = make
        self._pause = pause
        self._life = make()
        self._draining = asyncio.Event()
        self.deaths = 0
        """Clients that died so far."""

    async def run(self, handle: Callable[[Batch], Awaitable[None]]) -> None:
        """Pass every batch to `handle` until `drain()`; raises what `handle` raises, and Misconfigured leaves."""
        while not self._draining.is_set():
            try:
                await self._life.run(handle)
                return
            except ConsumerDied as died:
                self.deaths += 1
                log.warning("a Kafka client died and is replaced: %s", died)
            await self._life.stop()
            if not self._draining.is_set():
                self._life = self._make()
                await self._wait()

    def ack(self, records: Iterable[Record]) -> None:
        """As `RecordConsumer.ack`, on the present client."""
        self._life.ack(records)

    def drain(self) -> None:
        """Hand out no further batch."""
        self._draining.set()
        self._life.drain()

    async def stop(self) -> None:
        """Commit what is acknowledged and leave the group."""
        self.drain()
        await self._life.stop()

    @property
    def topic(self) -> str:
        """What it reads."""
        return self._life.topic

    @property
    def joined(self) -> bool:
        """As `RecordConsumer.joined`, of the present client."""
        return self._life.joined

    @property
    def assignment(self) -> frozenset[int]:
        """As `RecordConsumer.assignment`, of the present client."""
        return self._life.assignment

    def lag(self) -> Mapping[int, int]:
        """As `RecordConsumer.lag`, of the present client."""
        return self._life.lag()

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause.total_seconds()):
                await self._draining.wait()
