"""Records are handed out un-acknowledged, and nothing but an acknowledgement moves the commit."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from mode.threads import WorkerThread

from tests.kafka.conftest import Member, settings_for
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics, create_topics_of
from tests.support.waiting import eventually, wait_until
from workers.kafka import (
    Batch,
    BrokerAway,
    ConsumerDied,
    KafkaSettings,
    Record,
    RecordConsumer,
    RecordProducer,
    TopicMissing,
)

pytestmark = pytest.mark.kafka

SOON = timedelta(seconds=30)


async def publish(settings: KafkaSettings, topic: str, values: list[bytes], key: bytes | None = b"k") -> None:
    async with RecordProducer(settings) as producer:
        await producer.send_many(topic, [(key, value, [("h", b"1")]) for value in values])


@asynccontextmanager
async def reading(
    settings: KafkaSettings, role: str = "intake", acks: bool = True
) -> AsyncIterator[tuple[RecordConsumer, list[Record]]]:
    """A consumer that collects all it reads."""
    consumer = RecordConsumer(settings, settings.events_topic, role)
    read: list[Record] = []

    async def handle(batch: Batch) -> None:
        read.extend(batch)
        if acks:
            batch.ack()

    running = asyncio.create_task(consumer.run(handle))
    try:
        yield consumer, read
    finally:
        consumer.drain()
        await running
        await consumer.stop()


async def committed(settings: KafkaSettings, role: str = "intake") -> int:
    """The sum of the group's committed offsets."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(settings.group(role))
    finally:
        await admin.close()
    return sum(place.offset for place in offsets.values() if place.offset > 0)


def threads() -> int:
    """Threads of faust's clients in this process."""
    return sum(isinstance(thread, WorkerThread) for thread in threading.enumerate())


def is_committed(settings: KafkaSettings, expected: int) -> Callable[[], Any]:
    """For `eventually`: the group has committed exactly so much."""

    async def holds() -> bool:
        return await committed(settings) == expected

    return holds


async def test_a_record_keeps_its_key_value_headers_and_place(settings: KafkaSettings) -> None:
    async with RecordProducer(settings) as producer:
        await producer.send(settings.events_topic, b"\xff\x00key", b"\x00\xffnot utf-8", [("ce_id", b"\x01")])
        await producer.send(settings.events_topic, b"\xff\x00key", None)
        await producer.send(settings.events_topic, None, b"")

    async with reading(settings) as (_, read):
        await eventually("three records", lambda: len(read) == 3, SOON)

    first, tombstone = sorted((r for r in read if r.key), key=lambda r: r.offset)
    assert (first.key, first.value, first.headers) == (
        b"\xff\x00key",
        b"\x00\xffnot utf-8",
        [("ce_id", b"\x01")],
    )
    assert first.position == f"{settings.events_topic}:{first.partition}:0"
    assert first.timestamp > 1_700_000_000
    assert tombstone.value is None
    assert next(r for r in read if not r.key).value == b""


@pytest.mark.rule("EN-5")
async def test_a_header_without_a_value_is_read_and_stops_nothing(settings: KafkaSettings) -> None:
    headers: Any = [("ce_id", None), ("", b"")]
    async with RecordProducer(settings) as producer:
        await producer.send(settings.events_topic, b"k", b"strange", headers)
        await producer.send(settings.events_topic, b"k", b"good")

    async with reading(settings) as (_, read):
        await eventually("both records", lambda: len(read) == 2, SOON)

    assert [(record.value, record.headers) for record in read] == [(b"strange", headers), (b"good", [])]


@pytest.mark.rule("EN-7")
async def test_records_not_acknowledged_before_a_kill_come_again(
    settings: KafkaSettings, spawn: Callable[..., Member]
) -> None:
    await publish(settings, settings.events_topic, [b"a", b"b", b"c"])
    member = spawn(settings, settings.events_topic, "intake", "hold")
    await eventually("the member has read all", lambda: len(member.said("record")) == 3, SOON)
    member.kill()

    async with reading(settings) as (_, read):
        await eventually("all three came again", lambda: len(read) == 3, SOON)
    assert [r.value for r in read] == [b"a", b"b", b"c"]
    assert await committed(settings) == 3


async def test_records_acknowledged_before_a_kill_do_not_come_again(
    settings: KafkaSettings, spawn: Callable[..., Member]
) -> None:
    await publish(settings, settings.events_topic, [b"a", b"b"])
    member = spawn(settings, settings.events_topic, "intake", "ack")
    await eventually("all committed", is_committed(settings, 2), SOON)
    member.kill()
    await publish(settings, settings.events_topic, [b"c"])

    async with reading(settings) as (_, read):
        await eventually("the new one", lambda: len(read) == 1, SOON)
    assert read[0].value == b"c"


async def test_a_record_not_acknowledged_holds_the_commit_back_behind_it(settings: KafkaSettings) -> None:
    await publish(settings, settings.events_topic, [b"%d" % i for i in range(10)])

    async with reading(settings, acks=False) as (consumer, read):
        await eventually("ten records", lambda: len(read) == 10, SOON)
        consumer.ack(read[1:])
        consumer.ack(read[1:])
        await asyncio.sleep(0.6)
        assert await committed(settings) == 0
        assert consumer.outstanding == 10
        consumer.ack(read[:1])
        assert consumer.outstanding == 0
        await eventually("all committed", is_committed(settings, 10))


async def test_acks_may_come_in_any_order_and_stop_commits_them(settings: KafkaSettings) -> None:
    await publish(settings, settings.events_topic, [b"%d" % i for i in range(20)])

    async with reading(settings, acks=False) as (consumer, read):
        await eventually("twenty records", lambda: len(read) == 20, SOON)
        for record in [*read[10:15], *reversed(read[:10])]:
            consumer.ack([record])
    assert await committed(settings) == 15


async def test_a_batch_comes_at_once_at_low_load(settings: KafkaSettings) -> None:
    async with reading(settings) as (consumer, read), RecordProducer(settings) as producer:
        await eventually("joined", lambda: len(consumer.assignment) == 4, SOON)
        await producer.send(settings.events_topic, b"k", b"first")
        await eventually("first", lambda: read, SOON)
        loop = asyncio.get_running_loop()
        waits: list[float] = []
        for number in range(10):
            sent = loop.time()
            await producer.send(settings.events_topic, b"k", b"next")
            await eventually("it came", lambda n=number: len(read) == n + 2)  # type: ignore[misc]
            waits.append(loop.time() - sent)
    assert sorted(waits)[5] < 0.1


async def test_batches_are_bounded_in_records_and_bytes(settings: KafkaSettings) -> None:
    small = replace(settings, batch_records=7, batch_bytes=10_000)
    await publish(settings, settings.events_topic, [b"x" * 3000] * 20 + [b"y"] * 100)
    sizes: list[tuple[int, int]] = []
    consumer = RecordConsumer(small, small.events_topic, "intake")
    async for batch in consumer.batches():
        sizes.append((len(batch), sum(len(r.value or b"") for r in batch)))
        batch.ack()
        if sum(count for count, _ in sizes) == 120:
            break
    await consumer.stop()
    assert max(count for count, _ in sizes) <= 7
    assert max(total for _, total in sizes) <= 13_000


async def test_what_the_handler_raises_comes_out_of_run_and_nothing_is_acknowledged(
    settings: KafkaSettings,
) -> None:
    await publish(settings, settings.events_topic, [b"a"])
    consumer = RecordConsumer(settings, settings.events_topic, "intake")

    async def handle(batch: Batch) -> None:
        raise LookupError("no database")

    with pytest.raises(LookupError):
        await consumer.run(handle)
    await consumer.stop()
    assert await committed(settings) == 0


async def test_a_consumer_that_dies_says_so(settings: KafkaSettings) -> None:
    consumer = RecordConsumer(settings, settings.events_topic, "intake")

    async def handle(batch: Batch) -> None:
        batch.ack()

    running = asyncio.create_task(consumer.run(handle))
    await eventually("joined", lambda: consumer.joined, SOON)
    assert consumer._app is not None
    await consumer._app.crash(RuntimeError("broken inside"))
    with pytest.raises(ConsumerDied, match="broken inside"):
        await asyncio.wait_for(running, 5)
    assert not consumer.joined
    await consumer.stop()


@pytest.mark.rule("EN-17")
@pytest.mark.parametrize("steps", range(4))
async def test_a_reader_that_is_cancelled_just_as_a_record_comes_ends(
    settings: KafkaSettings, steps: int
) -> None:
    consumer, read = RecordConsumer(settings, settings.events_topic, "intake"), asyncio.Event()

    async def handle(batch: Batch) -> None:
        batch.ack()
        read.set()

    running = asyncio.create_task(consumer.run(handle))
    try:
        await publish(settings, settings.events_topic, [b"first"])
        await read.wait()
        await asyncio.sleep(0.05)
        assert consumer._queue is not None
        consumer._queue.put_nowait(SimpleNamespace(key=b"", value=b"", headers=None, generation_id=-1))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()

        ended, _ = await asyncio.wait({running}, timeout=5)
        assert ended
    finally:
        consumer.drain()
        await asyncio.wait({running})
        await consumer.stop()


async def test_a_missing_topic_is_named_at_start(settings: KafkaSettings) -> None:
    consumer = RecordConsumer(settings, "channel.nowhere", "intake")
    with pytest.raises(TopicMissing, match=r"channel\.nowhere"):
        await consumer.start()


async def test_a_broker_that_is_away_at_start_is_waited_for_until_told_to_stop() -> None:
    away = KafkaSettings.embedded("127.0.0.1:9")
    consumer = RecordConsumer(away, away.events_topic, "intake")
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(0.5)
    assert not starting.done()
    assert not consumer.joined
    await asyncio.wait_for(consumer.stop(), 2)
    await asyncio.wait_for(starting, 2)

    with pytest.raises(BrokerAway):
        await RecordProducer(away).send("t", b"k", b"v")


async def test_two_members_share_the_partitions_and_the_survivor_of_a_kill_has_all(
    settings: KafkaSettings, spawn: Callable[..., Member]
) -> None:
    async with reading(settings) as (consumer, read):
        await eventually("all four", lambda: len(consumer.assignment) == 4, SOON)
        member = spawn(settings, settings.events_topic, "intake", "hold")

        def two_each() -> bool:
            theirs = {*member.said("assignment")[-1]} if member.said("assignment") else set()
            return len(theirs) == len(consumer.assignment) == 2 and theirs | consumer.assignment == {
                0,
                1,
                2,
                3,
            }

        await eventually("two each", two_each, SOON)

        await publish(settings, settings.events_topic, [b"%d" % i for i in range(40)], key=None)
        await eventually("both read", lambda: len(read) + len(member.said("record")) == 40, SOON)
        member.kill()
        await eventually("all four again", lambda: len(consumer.assignment) == 4, SOON)
        await eventually(
            "every record here", lambda: {r.value for r in read} == {b"%d" % i for i in range(40)}, SOON
        )


async def test_a_late_ack_after_a_rebalance_is_harmless(
    settings: KafkaSettings, spawn: Callable[..., Member]
) -> None:
    await publish(settings, settings.events_topic, [b"%d" % i for i in range(8)], key=None)
    async with reading(settings, acks=False) as (consumer, read):
        await eventually("eight", lambda: len(read) == 8, SOON)
        member = spawn(settings, settings.events_topic, "intake", "hold")
        await eventually(
            "two each", lambda: member.said("assignment") and len(consumer.assignment) == 2, SOON
        )
        consumer.ack(read[:8])
        await asyncio.sleep(0.5)
        assert await committed(settings) == 0
        kept = consumer.assignment
        await eventually(
            "its own come again", lambda: len(read) == 8 + sum(r.partition in kept for r in read[:8]), SOON
        )


async def test_membership_without_partitions_counts_as_joined(settings: KafkaSettings) -> None:
    five = [RecordConsumer(settings, settings.events_topic, "intake") for _ in range(5)]

    async def handle(batch: Batch) -> None:
        batch.ack()

    running = [asyncio.create_task(consumer.run(handle)) for consumer in five]
    await eventually(
        "five members of four partitions",
        lambda: sorted(len(c.assignment) for c in five) == [0, 1, 1, 1, 1] and all(c.joined for c in five),
        SOON,
    )
    for consumer in five:
        consumer.drain()
    await asyncio.gather(*running)
    await asyncio.gather(*(consumer.stop() for consumer in five))


async def test_lag_counts_what_is_not_acknowledged(settings: KafkaSettings) -> None:
    async with reading(settings, acks=False) as (consumer, read):
        await publish(settings, settings.events_topic, [b"%d" % i for i in range(10)])
        await eventually("ten", lambda: len(read) == 10, SOON)
        assert sum(consumer.lag().values()) == 10
        consumer.ack(read)
        assert sum(consumer.lag().values()) == 0


@pytest.mark.rule("EN-38")
async def test_offsets_lost_before_they_were_read_are_counted(settings: KafkaSettings) -> None:
    await publish(settings, settings.events_topic, [b"a"])
    async with reading(settings) as (_, read):
        await eventually("one", lambda: len(read) == 1, SOON)
    place = read[0].partition
    await publish(settings, settings.events_topic, [b"%d" % i for i in range(9)])
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
    await admin.start()
    await admin.delete_records({TopicPartition(settings.events_topic, place): RecordsToDelete(5)})
    await admin.close()

    skipped: list[int] = []
    consumer = RecordConsumer(settings, settings.events_topic, "intake", skipped.append)
    async for batch in consumer.batches():
        assert batch.records[0].offset == 5
        batch.ack()
        break
    await consumer.stop()
    assert skipped == [4]


@pytest.mark.rule("EN-38")
async def test_a_log_made_anew_below_the_committed_offset_is_read_from_its_start(
    settings: KafkaSettings,
) -> None:
    await publish(settings, settings.events_topic, [b"a", b"b"])
    places = {TopicPartition(settings.events_topic, number): 1000 for number in range(4)}
    client = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap, group_id=settings.group("intake"))
    await client.start()
    client.assign(list(places))
    await client.commit(places)
    await client.stop()

    async with reading(settings) as (_, read):
        await eventually("both", lambda: len(read) == 2, SOON)
    assert [r.value for r in read] == [b"a", b"b"]


async def test_a_broker_killed_and_back_is_read_on_without_a_restart(own_kafka: KafkaCluster) -> None:
    topics = Topics.fresh()
    create_topics_of(own_kafka, topics)
    settings = settings_for(own_kafka, topics)
    async with RecordProducer(settings) as producer, reading(settings) as (consumer, read):
        await producer.send(topics.events, b"k", b"before")
        await eventually("before", lambda: len(read) == 1, SOON)
        own_kafka.brokers[0].kill()
        during = asyncio.create_task(producer.send(topics.events, b"k", b"during"))
        await eventually("not joined", lambda: not consumer.joined, SOON)
        await asyncio.to_thread(own_kafka.restart, own_kafka.brokers[0])
        await asyncio.wait_for(during, 30)
        await producer.send(topics.events, b"k", b"after")
        await eventually("after", lambda: {r.value for r in read} >= {b"before", b"during", b"after"}, SOON)
        await eventually("joined again", lambda: consumer.joined, SOON)


async def test_stop_returns_within_seconds_with_the_broker_away(own_kafka: KafkaCluster) -> None:
    topics = Topics.fresh()
    create_topics_of(own_kafka, topics)
    settings = settings_for(own_kafka, topics)
    await publish(settings, topics.events, [b"a"])
    before = threads()
    consumer = RecordConsumer(settings, topics.events, "intake")
    async for batch in consumer.batches():
        await asyncio.to_thread(own_kafka.brokers[0].kill)
        batch.ack()
        break
    loop = asyncio.get_running_loop()
    began = loop.time()
    await consumer.stop()
    assert loop.time() - began < 8
    await eventually("no thread is left", lambda: threads() <= before)


@pytest.mark.parametrize("after", [0.0, 0.001, 0.003, 0.01, 0.05, 0.2])
async def test_stop_leaves_no_thread_whenever_it_comes(settings: KafkaSettings, after: float) -> None:
    before = threads()
    consumer = RecordConsumer(settings, settings.events_topic, "intake")
    await consumer.start()
    await asyncio.sleep(after)
    await consumer.stop()
    await eventually("no thread is left", lambda: threads() <= before)


@pytest.mark.rule("EN-6")
def test_memory_stays_flat_behind_a_stuck_handler(
    settings: KafkaSettings, spawn: Callable[..., Member]
) -> None:
    member = spawn(settings, settings.events_topic, "intake", "stuck")
    wait_until("joined", lambda: member.said("assignment"), SOON)
    before = member.resident_bytes()
    payload = b"x" * 900_000

    asyncio.run(publish(settings, settings.events_topic, [payload] * 60, key=None))
    wait_until("stuck", lambda: member.said("record"), SOON)
    asyncio.run(publish(settings, settings.events_topic, [payload] * 60, key=None))
    after_half = member.resident_bytes()
    asyncio.run(publish(settings, settings.events_topic, [payload] * 120, key=None))
    wait_until("grown no more", lambda: member.resident_bytes() < after_half + 12 * 1024 * 1024)
    assert member.resident_bytes() - before < 64 * 1024 * 1024
