"""faust, cut down to a consumer: one topic, raw bytes, no web, no producer, no tables, no files, no signals.

What is changed and why (docs/faust.md has the evidence):
- the channel is read directly, not through a stream: a stream acknowledges what it skips during a rebalance;
- records are read from the committed offsets again whenever any were thrown away (`_Consumer._getmany`);
- a batch that aiokafka cannot parse is unpacked as far as it goes (`unpacking.py`);
- the queue between faust and the reader is bounded in bytes as well as in records (`bounded_queue.py`);
- a log that became shorter or lost its beginning is told, not passed over in silence;
- offsets acknowledged before a rebalance are committed before the partitions go;
- a heartbeat without an answer is given up after the session time-out, not after a request's 40 s, and the client's
  thread is a daemon, so a broker that never answers cannot keep the process alive (`client_thread.py`).
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import faust
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from faust.app.base import BootStrategy
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, TopicT

from workers.kafka.bounded_queue import ByteBoundedQueue
from workers.kafka.client_thread import ConsumerThread
from workers.kafka.conductor import StraightConductor
from workers.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

AWAY = (KafkaConnectionError, ConnectionError, TimeoutError)
FORBIDDEN = (GroupAuthorizationFailedError, TopicAuthorizationFailedError)
_NEVER_SECONDS = 24 * 3600.0
_REVOKE_COMMIT_SECONDS = 3.0
_UNSETTLED_SECONDS = 0.1


class _Consumer(driver.Consumer):
    """Records are read in one place, `_getmany`, and so is the seek: nothing that was read can be passed over.

    Whatever may have thrown records away (a rebalance at any moment, a queue that was cleared) only says so;
    before the next fetch every partition goes to its committed offset. faust seeks beside a fetch that goes on.
    """

    _expected: dict[TP, int]
    _astray = True
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
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def abandon(self) -> None:
        """End what is left of the client's thread: a broker does not answer its farewell, or it was only starting."""
        cast(ConsumerThread, self._thread).abandon()

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

    def lose_place(self) -> None:
        """Records that were fetched may be gone: read again from the committed offsets."""
        self._astray = True

    async def perform_seek(self) -> None:
        self.lose_place()

    def stop_flow(self) -> None:
        self.lose_place()
        super().stop_flow()

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Any:
        if self._astray and not await self._find_place():
            return {}
        records = await super()._getmany(active_partitions, timeout)
        self.last_poll = time.monotonic()
        return {} if self._astray else records

    async def _find_place(self) -> bool:
        """Seek; False when the assignment changed in the middle of it."""
        self._astray = False
        try:
            await super().perform_seek()
        except IllegalStateError:
            self._astray = True
            await self.sleep(_UNSETTLED_SECONDS)
            return False
        self._expected = {tp: offset for tp, offset in self._committed_offset.items() if offset is not None}
        return not self._astray

    async def verify_all_partitions_active(self) -> None:
        """Left out: faust's watchdog only logs, and dies of a partition whose position is being looked for."""

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """What faust's own yields, without its questions about every single record."""
        records, active = await self._wait_next_records(timeout)
        generation = self.app.consumer_generation_id
        for tp, record in self.scheduler.iterate(records or {}):
            if self._astray or self.should_stop or generation != self.app.consumer_generation_id:
                return
            if active is None or tp in active or tp in self._buffered_partitions:
                yield tp, self._to_message(tp, record)

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

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        self.lose_place()
        if revoked:
            await self._commit_before_they_go()
        if self.on_revoked is not None:
            self.on_revoked()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """faust may have resumed, late, what the rebalance before this one had suspended."""
        self.stop_flow()
        self.app.flow_control.suspend()
        await super().on_partitions_assigned(assigned, generation_id)

    async def _commit_before_they_go(self) -> None:
        committing = asyncio.create_task(self.commit(), name="kafka-commit-revoked")
        done, _ = await asyncio.wait({committing}, timeout=_REVOKE_COMMIT_SECONDS)
        if not done:
            committing.cancel()
            log.warning(
                "acknowledged offsets were not committed before a rebalance; their records come again"
            )


class _Transport(driver.Transport):
    Consumer = _Consumer
    Conductor = StraightConductor


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
    """Subscribe `app` to `topic`; its messages arrive in the returned queue."""
    queue = ByteBoundedQueue(
        settings.buffer_records, settings.buffer_bytes, app.flow_control, app.member.lose_place
    )
    root = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
    app.topics.add(cast(TopicT, root.clone(is_iterator=True, queue=queue)))
    app.member.queue = queue
    return queue
