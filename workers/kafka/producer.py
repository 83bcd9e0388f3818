"""A record is sent once the in-sync replicas acknowledged it; until then it counts against a bound in bytes.

Idempotent within one life of the producer; across a crash the caller sends again and readers see repeats.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from workers.kafka.broker import describe, wait_for_topics
from workers.kafka.errors import BrokerAway, RecordTooLarge, TopicForbidden
from workers.kafka.record import Headers, payload_bytes
from workers.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
_FORBIDDEN = (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)
Outgoing = tuple[bytes | None, bytes | None, Headers]


class RecordProducer:
    """One aiokafka producer; start it once, share it freely within the loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._stopping = asyncio.Event()
        self._reviving = asyncio.Lock()
        self._room = _ByteRoom(settings.pending_bytes)

    async def start(self, *topics: str) -> None:
        """Wait for a broker that knows `topics`; returns un-started when `stop()` comes first.

        Raises BrokerLoginFailed, TopicMissing, TopicForbidden.
        """
        while self._producer is None and await wait_for_topics(self._settings, topics, self._stopping):
            producer = self._new_client()
            try:
                await producer.start()
                _require_brokers(producer)
            except (KafkaError, TimeoutError, OSError) as error:
                log.warning("Kafka went away while the producer started: %s", error)
                await producer.stop()
                continue
            except BaseException:
                await producer.stop()
                raise
            self._producer = producer

    def _new_client(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self._settings.servers,
            client_id="parley",
            acks="all",
            enable_idempotence=True,
            linger_ms=int(self._settings.linger.total_seconds() * 1000),
            max_request_size=self._settings.record_bytes,
            request_timeout_ms=int(self._settings.request_timeout.total_seconds() * 1000),
            **self._settings.client_options(),
        )

    async def __aenter__(self) -> "RecordProducer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None
    ) -> None:
        """Returns once the broker has acknowledged; waits for room first, and through outages, however long.

        A caller with a deadline cancels: the record may be written all the same, and counts as pending until then.
        Raises RecordTooLarge, TopicForbidden, BrokerAway (not started, or the record may not have been written).
        """
        await self.send_many(topic, [(key, value, headers or [])])

    async def send_many(self, topic: str, records: Iterable[Outgoing]) -> None:
        """Send all and wait for all, in order within a partition; raises like `send`, for the first failure.

        After a failure any of the others may have been written.
        """
        sent = [await self._enqueue(topic, key, value, headers) for key, value, headers in records]
        if not sent:
            return
        await asyncio.wait(sent)
        for future in sent:
            if (error := _error_of(future)) is not None:
                raise self._translated(topic, error)

    async def stop(self) -> None:
        """Flush what is pending and close; gives up after seconds with the broker away."""
        self._stopping.set()
        producer, self._producer = self._producer, None
        if producer is not None:
            await _close(producer)

    async def broker_answers(self) -> bool:
        """Started, and a broker answers now, on a new connection; raises BrokerAway, BrokerLoginFailed."""
        return self._producer is not None and bool(
            await describe(self._settings, (self._settings.events_topic,))
        )

    @property
    def pending_bytes(self) -> int:
        """Bytes handed to the client and not yet acknowledged."""
        return self._room.taken

    async def _enqueue(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> "asyncio.Future[Any]":
        size = payload_bytes(key, value, headers)
        if size > self._settings.record_bytes:
            raise RecordTooLarge(topic, size)
        await self._room.take(size)
        try:
            producer = await self._living()
            future: asyncio.Future[Any] = await producer.send(topic, value, key=key, headers=headers)
        except BaseException as error:
            self._room.give(size)
            raise self._translated(topic, error) from error
        future.add_done_callback(lambda done: self._settled(done, size))
        return future

    async def _living(self) -> AIOKafkaProducer:
        """The client; a fresh one when the broker refused the sequence of the last (it lost data, or forgot it)."""
        async with self._reviving:
            if self._producer is not None and self._producer._sender.sender_task.done():
                log.error("the producer had failed for good and is made anew")
                broken, self._producer = self._producer, None
                await _close(broken)
                await self.start()
            if self._producer is None:
                raise BrokerAway(self._settings.bootstrap, "the producer is not started")
            return self._producer

    def _settled(self, future: "asyncio.Future[Any]", size: int) -> None:
        _error_of(future)
        self._room.give(size)

    def _translated(self, topic: str, error: BaseException) -> BaseException:
        if isinstance(error, _TOO_LARGE):
            return RecordTooLarge(topic, self._settings.record_bytes)
        if isinstance(error, _FORBIDDEN):
            return TopicForbidden(topic, "not allowed to write it")
        if isinstance(error, (KafkaError, TimeoutError, OSError)):
            return BrokerAway(self._settings.bootstrap, f"{type(error).__name__}: {error}")
        return error


def _error_of(future: "asyncio.Future[Any]") -> BaseException | None:
    return asyncio.CancelledError() if future.cancelled() else future.exception()


def _require_brokers(producer: AIOKafkaProducer) -> None:
    """A broker that just started names no brokers, and aiokafka does not always hear of them later."""
    if not producer.client.cluster.brokers():
        raise KafkaConnectionError("the cluster names no broker yet")


async def _close(producer: AIOKafkaProducer) -> None:
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await producer.stop()
    except (TimeoutError, KafkaError) as error:
        log.warning("the producer was closed with records pending: %s", type(error).__name__)
        producer._sender.sender_task.cancel()
        await producer.client.close()


class _ByteRoom:
    """Bytes that may be pending at once, given in the order of asking; a larger demand waits for all."""

    def __init__(self, limit: int) -> None:
        self.taken = 0
        self._limit = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        if not self._waiting and (self.taken == 0 or self.taken + size <= self._limit):
            self.taken += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            raise

    def give(self, size: int) -> None:
        self.taken -= size
        while self._waiting:
            wanted, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
                continue
            if self.taken and self.taken + wanted > self._limit:
                return
            self._waiting.popleft()
            self.taken += wanted
            turn.set_result(None)
