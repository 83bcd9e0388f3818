"""Publishes commands for the addresses of journalled deliveries, after their commit.

A command names several addresses where several wait, and few enough that replicas share the work. The queue is
bounded and never waits for Kafka: what does not fit, or cannot be published, is dropped and counted, and found by
the reconciler.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, Protocol

import structlog

from schemas.delivery import DeliveryCommand
from schemas.errors import Transient
from workers.kafka.record import Headers

log = structlog.get_logger(__name__)

_Record = tuple[bytes | None, bytes | None, Headers]
_ADDRESSES_A_COMMAND: Final = 50


class Producer(Protocol):
    """The part of `workers.kafka.RecordProducer` that is used here."""

    async def send_many(self, topic: str, records: Iterable[_Record]) -> None: ...


class Outbox:
    """`offer()` from anywhere in the loop; `run()` publishes until `stop()`."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        *,
        capacity: int = 10_000,
        max_batch: int = 500,
        pause: timedelta = timedelta(seconds=1),
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._capacity = capacity
        self._max_batch = max_batch
        self._pause = pause
        self._waiting: deque[int] = deque()
        self._changed = asyncio.Event()
        self._stopping = False
        self.dropped = 0
        """Addresses for which no command was published."""

    def offer(self, address_ids: Sequence[int]) -> None:
        """Queue the addresses of committed deliveries; those that do not fit are dropped."""
        room = self._capacity - len(self._waiting)
        self._waiting.extend(address_ids[:room])
        if len(address_ids) > room:
            self.dropped += len(address_ids) - room
        self._changed.set()

    async def run(self) -> None:
        """Publish until `stop()` and the queue is empty."""
        while True:
            self._changed.clear()
            while self._waiting:
                await self._publish()
            if self._stopping:
                return
            await self._changed.wait()

    def stop(self) -> None:
        """Publish what waits, then return from `run()`."""
        self._stopping = True
        self._changed.set()

    async def _publish(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_batch))]
        try:
            await self._producer.send_many(self._topic, _records(batch))
        except Transient as error:
            self.dropped += len(batch)
            log.warning("outbox.unpublished", addresses=len(batch), error=type(error).__name__)
            if not self._stopping:
                await asyncio.sleep(self._pause.total_seconds())


def _records(address_ids: Sequence[int]) -> list[_Record]:
    distinct = list(dict.fromkeys(address_ids))
    commands = [
        DeliveryCommand(address_ids=tuple(distinct[at : at + _ADDRESSES_A_COMMAND]))
        for at in range(0, len(distinct), _ADDRESSES_A_COMMAND)
    ]
    return [(command.record_key, command.encode(), []) for command in commands]
