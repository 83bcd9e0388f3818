"""Records come un-acknowledged, in batches of whatever waits; only what the caller acknowledges is committed.

A crash at any point redelivers what was not acknowledged. Acks may come in any order and late; commits are
contiguous. A stuck handler stops the reading (bounded in records and bytes) and never the group membership.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from faust.types import TP, Message

from workers.kafka.bounded_queue import ByteBoundedQueue, headers_of
from workers.kafka.broker import wait_for_topics
from workers.kafka.errors import ConsumerDied, TopicForbidden
from workers.kafka.faust_app import AWAY, FORBIDDEN, ConsumerApp, build_app, open_channel
from workers.kafka.ledger import Ledger
from workers.kafka.record import Record, Tenure
from workers.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in the order of each partition; acknowledge each one, after what it caused is committed."""

    records: tuple[Record, ...]
    consumer: "RecordConsumer"

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def ack(self, *records: Record) -> None:
        """Acknowledge these records; all of the batch when none are given."""
        self.consumer.ack(records or self.records)


class RecordConsumer:
    """One member of group `settings.group(role)` over one topic, in the caller's loop; one life each."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        role: str,
        on_skipped: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_skipped` hears how many offsets were gone (retention, a lost log) before they could be read."""
        self.topic = topic
        self.group = settings.group(role)
        self._settings = settings
        self._app: ConsumerApp | None = None
        self._queue: ByteBoundedQueue | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._ledger: Ledger[Message] = Ledger()
        self._tenure = Tenure()
        self._room = asyncio.Event()
        self._draining = asyncio.Event()
        self._on_skipped = on_skipped

    async def start(self) -> None:
        """Wait for a broker, check the topic, begin to join; returns early, un-started, once told to drain.

        Raises BrokerLoginFailed, TopicMissing, TopicForbidden.
        """
        if self._app is not None or not await wait_for_topics(self._settings, (self.topic,), self._draining):
            return
        app = build_app(self._settings, self.group)
        app.finalize()
        self._queue = open_channel(app, self.topic, self._settings)
        app.member.on_revoked = self._on_revoked
        app.member.on_jump = self._on_jump
        self._app = app
        self._starting = asyncio.create_task(app.start(), name=f"kafka-start-{self.group}")

    async def run(self, handle: Callable[[Batch], Awaitable[None]]) -> None:
        """Start, pass every batch to `handle` until `drain()`; what `handle` raises is raised here.

        Raises ConsumerDied when the member is lost for good, TopicForbidden when it may not read.
        `stop()` stays the caller's to call.
        """
        async for batch in self.batches():
            await handle(batch)

    async def batches(self) -> AsyncIterator[Batch]:
        """Whatever is waiting, at most `batch_records` and about `batch_bytes`; ends after `drain()`."""
        await self.start()
        while not self._draining.is_set():
            await self._keep_alive()
            if self._draining.is_set() or not await self._has_room():
                continue
            records = await self._take()
            if records:
                yield Batch(tuple(records), self)

    def ack(self, records: Iterable[Record]) -> None:
        """Let these offsets be committed; repeats and records of revoked partitions are ignored."""
        for record in records:
            for message in self._ledger.ack(record.partition, record.generation, record.offset):
                if self._app is not None:
                    self._app.consumer.ack(message)
        self._room.set()

    def drain(self) -> None:
        """Hand out no further batch; acknowledging goes on until `stop()`."""
        self._draining.set()
        self._room.set()

    async def stop(self) -> None:
        """Commit what is acknowledged and leave the group; takes seconds at most, the broker away or not."""
        self.drain()
        await self._close()

    async def _close(self) -> None:
        app, self._app = self._app, None
        if app is None:
            return
        self._tenure.ended, self._tenure = True, Tenure()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        stopping = asyncio.create_task(app.stop(), name=f"kafka-stop-{self.group}")
        done, _ = await asyncio.wait({stopping}, timeout=_STOP_SECONDS)
        if not done:
            log.warning("left group %s without saying so: the broker does not answer", self.group)
            stopping.cancel()
        elif (error := stopping.exception()) is not None:
            log.warning("leaving group %s failed: %s", self.group, error)
        # What is left of the client's thread: faust ends none that was only starting.
        app.member.abandon()

    @property
    def assignment(self) -> frozenset[int]:
        """Partitions this member holds; stale while the broker is away."""
        client = self._client()
        return frozenset(tp.partition for tp in client.assignment()) if client is not None else frozenset()

    @property
    def joined(self) -> bool:
        """Member of the group by the coordinator's last word; true with no partitions as well."""
        client = self._client()
        if client is None or self._app is None or self._app.should_stop:
            return False
        coordinator = client._coordinator
        if coordinator is None or coordinator.coordinator_id is None:
            return False
        return bool(coordinator.generation > 0)

    @property
    def last_poll(self) -> float | None:
        """Monotonic time of the last finished poll; it stands still while the handler holds all back."""
        return self._app.member.last_poll if self._app is not None else None

    @property
    def outstanding(self) -> int:
        """Records handed out and not released: un-acknowledged, or acknowledged behind one that is not."""
        return self._ledger.records

    def lag(self) -> Mapping[int, int]:
        """Records not yet acknowledged by partition, as of the last fetch; the broker is not asked."""
        client, lag = self._client(), {}
        if client is None or self._app is None:
            return {}
        for tp in client.assignment():
            end = self._app.member.end_of(tp)
            read = self._app.member._read_offset[tp]
            oldest = self._ledger.oldest(tp.partition)
            if end is not None:
                done = oldest if oldest is not None else (read + 1 if read is not None else 0)
                lag[tp.partition] = max(0, end - done)
        return lag

    async def _take(self) -> list[Record]:
        """Wait for one record (or a look around after half a second), then take what else is there."""
        assert self._app is not None
        assert self._queue is not None
        queue, app = self._queue, self._app
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                message = await queue.get()
        except TimeoutError:
            return []
        records: list[Record] = []
        room, limit = self._settings.batch_bytes, self._settings.batch_records
        while True:
            if message.generation_id == app.consumer_generation_id:
                record = self._hand_out(message)
                records.append(record)
                room -= record.size
            if room <= 0 or len(records) >= limit or queue.empty():
                return records
            message = queue.get_nowait()

    def _hand_out(self, message: Message) -> Record:
        record = Record(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            key=message.key,
            value=message.value,
            headers=headers_of(message),
            timestamp=message.timestamp,
            generation=message.generation_id or 0,
            tenure=self._tenure,
        )
        message.key = message.value = None
        self._ledger.take(record.partition, record.generation, record.offset, message, record.size)
        return record

    async def _has_room(self) -> bool:
        """False after half a second without room: time to look whether the member still lives."""
        self._room.clear()
        ledger, settings = self._ledger, self._settings
        if (
            ledger.records < settings.outstanding_records
            and ledger.unacked_bytes < settings.outstanding_bytes
        ):
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._room.wait()
        return False

    def _on_revoked(self) -> None:
        self._tenure.ended, self._tenure = True, Tenure()
        self._ledger.clear()
        self._room.set()

    def _on_jump(self, tp: TP, expected: int, found: int) -> None:
        if found > expected:
            log.error("%s lost offsets %d to %d before they were read", tp, expected, found - 1)
            self._on_skipped(found - expected)
        else:
            log.error("%s went back from offset %d to %d: its log was cut or made anew", tp, expected, found)
            self._ledger.forget(tp.partition)

    async def _keep_alive(self) -> None:
        """Begin again when the broker went away in mid-start; raise what cannot be mended here."""
        app = self._app
        if app is None:
            raise ConsumerDied(self.topic, "it was stopped")
        fault = self._fault(app)
        if fault is None:
            return
        if isinstance(fault, AWAY):
            log.warning("%s begins again, the broker went away: %s", self.group, fault)
            await self._close()
            self._ledger.clear()
            await self.start()
            return
        if isinstance(fault, FORBIDDEN):
            raise TopicForbidden(self.topic, f"group {self.group} may not read it ({type(fault).__name__})")
        raise ConsumerDied(self.topic, f"{type(fault).__name__}: {fault}") from fault

    def _fault(self, app: ConsumerApp) -> BaseException | None:
        if self._starting is not None and self._starting.done() and not self._starting.cancelled():
            error = self._starting.exception()
            if error is not None:
                return error
        if fault := app.member.fault():
            return fault
        if app.crashed or app.should_stop:
            return app.crash_reason or RuntimeError("faust stopped by itself")
        return None

    def _client(self) -> Any:
        """aiokafka's consumer inside faust, None before it exists."""
        if self._app is None:
            return None
        return self._app.member.client
