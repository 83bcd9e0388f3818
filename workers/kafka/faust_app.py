"""faust, cut down to a consumer: one topic, raw bytes, no web, no producer, no tables, no files, no signals.

What is changed and why (docs/faust.md has the evidence):
- the channel is read directly, not through a stream: a stream acknowledges what it skips during a rebalance;
- the queue between faust and the reader is bounded in bytes as well as in records;
- a log that became shorter or lost its beginning is told, not passed over in silence;
- offsets acknowledged before a rebalance are committed before the partitions go;
- the client thread is a daemon, so a broker that never answers cannot keep the process alive.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import faust
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from faust.app.base import BootStrategy
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, EventT, Message, TopicT
from mode.threads import WorkerThread
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from workers.kafka.record import Headers, payload_bytes
from workers.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

AWAY = (KafkaConnectionError, ConnectionError, TimeoutError)
FORBIDDEN = (GroupAuthorizationFailedError, TopicAuthorizationFailedError)
_NEVER_SECONDS = 24 * 3600.0
_REVOKE_COMMIT_SECONDS = 3.0
_LAST_SECONDS = 0.5


class ByteBoundedQueue(ThrowableQueue):  # type: ignore[type-arg]
    """Full at `maxsize` records or `max_bytes` of payload; one record larger than that still passes."""

    def __init__(self, maxsize: int, max_bytes: int, flow_control: FlowControlEvent) -> None:
        self.bytes = 0
        self._max_bytes = max_bytes
        super().__init__(maxsize, flow_control=flow_control, clear_on_resume=True)

    def full(self) -> bool:
        return self.bytes >= self._max_bytes or super().full()

    def _put(self, item: EventT[Any]) -> None:
        self.bytes += _event_bytes(item)
        super()._put(item)

    def _get(self) -> EventT[Any]:
        item: EventT[Any] = super()._get()
        self.bytes -= _event_bytes(item)
        return item

    def clear(self) -> None:
        self.bytes = 0
        super().clear()


def _event_bytes(event: EventT[Any]) -> int:
    message = event.message
    return payload_bytes(message.key, message.value, headers_of(message))


def headers_of(message: Message) -> Headers:
    """aiokafka gives pairs; faust's types allow a mapping as well."""
    headers = message.headers or ()
    return list(headers.items() if isinstance(headers, Mapping) else headers)


class _DaemonWorker(WorkerThread):
    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    Worker = _DaemonWorker
    abandoned = False

    def _start_thread(self) -> None:
        try:
            super()._start_thread()
        except (RuntimeError, asyncio.CancelledError):
            if not self.abandoned:
                raise

    def _create_worker_consumer(self, transport: Any) -> Any:
        """faust fixes the longest fetch at 1.5 s; a broker that answers only at its end makes that the latency."""
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = int(cast(ConsumerApp, self.app).fetch_wait.total_seconds() * 1000)
        return consumer

    def abandon(self) -> None:
        """End the thread without a word to the broker."""
        self.abandoned = True
        if self.thread_loop.is_running():
            self.thread_loop.call_soon_threadsafe(self._end_loop)

    def _end_loop(self) -> None:
        for task in asyncio.all_tasks(self.thread_loop):
            task.cancel()
        self.thread_loop.call_later(_LAST_SECONDS, self.thread_loop.stop)

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        log.error("kafka client thread crashed: %s", msg.format(*fmt), exc_info=True)


class _Consumer(driver.Consumer):
    _expected: dict[TP, int]
    last_poll: float | None = None
    on_revoked: Callable[[], None] | None = None
    on_jump: Callable[[TP, int, int], None] | None = None
    """Called with partition, expected offset and the offset that came instead."""
    queue: ByteBoundedQueue | None = None

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:
        """faust races every single record against a rebalance; one that cannot block needs no race."""
        if (
            self.queue is None
            or self.queue.full()
            or not self.flow_active
            or not self.app.flow_control.is_active()
        ):
            return await super().wait_first(*coros, timeout=timeout)
        deliver, *watchers = coros
        for watcher in watchers:
            watcher.close()
        return await deliver

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._expected = {}

    @property
    def client(self) -> Any:
        """aiokafka's own consumer; None before the thread has made it."""
        return self._thread._consumer

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def abandon(self) -> None:
        """End the client's thread when the broker does not answer its farewell."""
        cast(_ConsumerThread, self._thread).abandon()

    def fault(self) -> BaseException | None:
        """Why the client will never read again though faust has not noticed: no permission, or a task ended."""
        coordinator = getattr(self.client, "_coordinator", None)
        if coordinator is None:
            return None
        for task in (coordinator._coordination_task, self.client._fetcher._fetch_task):
            if task.done() and not task.cancelled() and task.exception() is not None:
                return cast(BaseException, task.exception())
        return cast("BaseException | None", coordinator._pending_exception)

    def end_of(self, tp: TP) -> int | None:
        """The end of a partition as of its last fetch; None while it is not held or not fetched."""
        try:
            end: int | None = self.highwater(tp)
        except (AssertionError, KafkaError):  # revoked meanwhile, by the client's thread
            return None
        return end

    async def perform_seek(self) -> None:
        await super().perform_seek()
        self._expected = {tp: offset for tp, offset in self._committed_offset.items() if offset is not None}

    def _to_message(self, tp: TP, record: Any) -> Any:
        expected = self._expected.get(tp, record.offset)
        if record.offset != expected:
            if record.offset < expected:
                self._begin_again(tp)
            if self.on_jump is not None:
                self.on_jump(tp, expected, record.offset)
        self._expected[tp] = record.offset + 1
        return super()._to_message(tp, record)

    def _begin_again(self, tp: TP) -> None:
        """Without this faust drops records below the offset it has read, and says nothing."""
        self._read_offset[tp] = self._committed_offset[tp] = None
        self._acked.pop(tp, None)
        self._acked_index.pop(tp, None)
        self._gap.pop(tp, None)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        records = await super()._getmany(active_partitions, timeout)
        self.last_poll = time.monotonic()
        return records

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        if revoked:
            try:
                await asyncio.wait_for(self.commit(), _REVOKE_COMMIT_SECONDS)
            except TimeoutError:
                log.warning(
                    "acknowledged offsets were not committed before a rebalance; their records come again"
                )
        if self.on_revoked is not None:
            self.on_revoked()
        await super().on_partitions_revoked(revoked)


class _Transport(driver.Transport):
    Consumer = _Consumer


class _ConsumerOnly(BootStrategy):
    enable_kafka_producer = False
    enable_web = False


class ConsumerApp(faust.App):
    """A faust app that lives in the caller's loop and owns nothing but a consumer."""

    BootStrategy = _ConsumerOnly
    fetch_wait = timedelta(milliseconds=500)

    @property
    def member(self) -> _Consumer:
        """The consumer, by its real type."""
        return cast(_Consumer, self.consumer)

    def _new_transport(self) -> driver.Transport:
        return _Transport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Nothing is stored in files."""


def build_app(settings: KafkaSettings, group: str) -> ConsumerApp:
    """A fresh app (one life each) in consumer group `group`."""
    app = ConsumerApp(
        group,
        broker=";".join(f"kafka://{server}" for server in settings.servers),
        broker_credentials=_credentials(settings),
        broker_client_id="parley",
        broker_session_timeout=settings.session_timeout.total_seconds(),
        broker_heartbeat_interval=settings.heartbeat_every.total_seconds(),
        broker_request_timeout=settings.request_timeout.total_seconds(),
        broker_rebalance_timeout=settings.request_timeout.total_seconds(),
        broker_commit_interval=settings.commit_every.total_seconds(),
        broker_max_poll_interval=_NEVER_SECONDS,
        broker_max_poll_records=settings.buffer_records,
        broker_commit_livelock_soft_timeout=_NEVER_SECONDS,
        stream_processing_timeout=_NEVER_SECONDS,
        stream_wait_empty=False,
        consumer_max_fetch_size=settings.fetch_partition_bytes,
        consumer_auto_offset_reset="earliest",
        autodiscover=False,
        datadir=Path(tempfile.gettempdir()) / "parley-unused",
        store="memory://",
        cache="memory://",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    app.fetch_wait = settings.fetch_wait
    return app


def _credentials(settings: KafkaSettings) -> Any:
    tls = settings.tls()
    if settings.security.startswith("SASL"):
        return faust.SASLCredentials(
            username=settings.user,
            password=settings.password(),
            mechanism=settings.mechanism,
            ssl_context=tls,
        )
    return faust.SSLCredentials(context=tls) if tls is not None else None


def open_channel(app: ConsumerApp, topic: str, settings: KafkaSettings) -> ByteBoundedQueue:
    """Subscribe `app` to `topic`; its undecoded events arrive in the returned queue."""
    queue = ByteBoundedQueue(settings.buffer_records, settings.buffer_bytes, app.flow_control)
    root = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    app.topics.add(cast(TopicT, root.clone(is_iterator=True, queue=queue)))
    app.member.queue = queue
    return queue
