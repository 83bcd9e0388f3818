"""Signed events of many conversations, each numbered from 0: as a backlog, or so many a second."""

import time
from collections import Counter
from datetime import UTC, datetime

from confluent_kafka import Producer

from benchmarks.parley_side import CHANNEL, KEY
from schemas.envelope import SealedEvent, seal
from schemas.event import Event
from schemas.identity import DIRECT, Principal

FLUSH_SECONDS = 60


class Publisher:
    """Numbers what it publishes; `published` counts events by conversation."""

    def __init__(self, bootstrap: str, conversations: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2}
        self._producer = Producer(settings | {"enable.idempotence": True})
        self._conversations = conversations
        self.published: Counter[int] = Counter()

    def backlog(self, count: int, *topics: str) -> None:
        """`count` events, the conversations in turn, the same records to each of `topics`; on the broker
        when it returns."""
        for index in range(count):
            sealed = self._next("b", index)
            for topic in topics:
                self._produce(topic, sealed)
        self._flush()

    def paced(self, count: int, per_second: int, topic: str) -> None:
        """`count` events at an even pace, whatever becomes of them."""
        begin = time.monotonic()
        for index in range(count):
            time.sleep(max(0.0, begin + index / per_second - time.monotonic()))
            self._produce(topic, self._next("l", index))
        self._flush()

    def _next(self, phase: str, index: int) -> SealedEvent:
        conversation = index % self._conversations
        sequence = self.published[conversation]
        self.published[conversation] += 1
        return _sealed(phase, conversation, sequence)

    def _produce(self, topic: str, sealed: SealedEvent) -> None:
        while True:
            try:
                self._producer.produce(topic, sealed.value, sealed.key, headers=dict(sealed.headers))
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_SECONDS)
        if left:
            raise RuntimeError(f"{left} events did not reach the broker")


def backlog_of(count: int, conversations: int) -> Counter[int]:
    """How many events of a backlog of `count` belong to each conversation."""
    return Counter(index % conversations for index in range(count))


def _sealed(phase: str, conversation: int, sequence: int) -> SealedEvent:
    now = datetime.now(UTC)
    event = Event(
        event_id=f"{conversation}-{sequence}",
        channel=CHANNEL,
        account="default",
        chat=f"chat-{conversation}",
        audience=DIRECT,
        kind="message",
        principal=Principal(f"user-{conversation}"),
        text=f"{phase} {conversation} {sequence} {time.monotonic_ns()}",
        occurred_at=now,
    )
    return seal(event, [KEY], now)
