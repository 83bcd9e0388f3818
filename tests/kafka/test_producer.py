"""Sending returns after the acknowledgement, in bounds, and names what is wrong."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.kafka.conftest import settings_for
from tests.kafka.test_consumer import SOON, reading
from tests.support.kafka.cluster import ADAPTER, WORKER, Account, KafkaCluster
from tests.support.kafka.topics import STANDARD, Topics, create_topics_of
from tests.support.waiting import eventually
from workers.kafka import (
    BrokerLoginFailed,
    KafkaSettings,
    RecordConsumer,
    RecordProducer,
    RecordTooLarge,
    TopicForbidden,
    TopicMissing,
)
from workers.kafka.producer import _ByteRoom
from workers.kafka.topics import create_topics, retention

pytestmark = pytest.mark.kafka


def as_account(cluster: KafkaCluster, account: Account, folder: Path) -> KafkaSettings:
    password_file = folder / account.name
    password_file.write_text(f"{account.password}\n", "utf-8")
    return replace(
        settings_for(cluster, STANDARD),
        security="SASL_PLAINTEXT",
        user=account.name,
        password_file=password_file,
    )


async def test_records_with_one_key_keep_their_order(settings: KafkaSettings) -> None:
    async with RecordProducer(settings) as producer:
        await producer.send_many(settings.events_topic, [(b"k", b"%d" % n, []) for n in range(300)])
    async with reading(settings) as (_, read):
        await eventually("all", lambda: len(read) == 300, SOON)
    assert [r.value for r in read] == [b"%d" % n for n in range(300)]


async def test_pending_bytes_are_bounded_and_given_back(settings: KafkaSettings) -> None:
    tight = replace(settings, pending_bytes=50_000)
    most = 0
    async with RecordProducer(tight) as producer:
        sends = [asyncio.create_task(producer.send(tight.events_topic, None, b"x" * 9000)) for _ in range(60)]
        while not all(send.done() for send in sends):
            most = max(most, producer.pending_bytes)
            await asyncio.sleep(0)
        await asyncio.gather(*sends)
        assert producer.pending_bytes == 0
    assert 9000 < most <= 50_000


async def test_room_goes_in_the_order_of_asking_and_survives_a_cancelled_wait() -> None:
    room = _ByteRoom(10)
    await room.take(8)
    large, small = asyncio.create_task(room.take(9)), asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    await asyncio.sleep(0)
    room.give(8)
    await asyncio.wait_for(small, 1)
    assert room.taken == 1
    await asyncio.wait_for(asyncio.gather(asyncio.shield(asyncio.create_task(_over(room)))), 1)


async def _over(room: _ByteRoom) -> None:
    room.give(1)
    await room.take(100)


async def test_a_record_above_the_limit_is_rejected(settings: KafkaSettings) -> None:
    async with RecordProducer(settings) as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send(settings.events_topic, b"k", b"x" * (3 * 1024 * 1024))
        with pytest.raises(RecordTooLarge):
            await producer.send(settings.events_topic, b"k", b"x" * (3 * 512 * 1024))
        await producer.send(settings.events_topic, b"k", b"fits")


async def test_topics_are_created_once_with_their_retention(kafka: KafkaCluster) -> None:
    settings = settings_for(kafka, Topics.fresh())
    assert await create_topics(settings) == settings.topics
    assert await create_topics(settings) == ()
    assert await retention(settings, settings.events_topic) == settings.retention
    with pytest.raises(TopicMissing, match="absent"):
        await RecordProducer(settings).start("absent")


async def test_a_refused_login_is_said_at_once(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    wrong = as_account(kafka_cluster, Account("worker", "not-this-one"), tmp_path)
    with pytest.raises(BrokerLoginFailed, match="worker") as failed:
        await asyncio.wait_for(RecordProducer(wrong).start(), 20)
    assert "not-this-one" not in str(failed.value)
    with pytest.raises(BrokerLoginFailed):
        await asyncio.wait_for(RecordConsumer(wrong, wrong.events_topic, "intake").start(), 20)


async def test_an_adapter_may_write_events_and_a_worker_may_read_them(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    adapter = as_account(kafka_cluster, ADAPTER, tmp_path)
    worker = replace(as_account(kafka_cluster, WORKER, tmp_path), group_prefix=adapter.group_prefix)
    async with RecordProducer(adapter) as producer:
        await producer.send(adapter.events_topic, b"k", b"from the adapter")
    async with reading(worker) as (_, read):
        await eventually("it", lambda: b"from the adapter" in {r.value for r in read}, SOON)
    async with RecordProducer(worker) as producer:
        with pytest.raises(TopicForbidden):
            await producer.send(worker.events_topic, b"k", b"v")


async def test_a_reader_without_permission_is_told_so(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    adapter = as_account(kafka_cluster, ADAPTER, tmp_path)
    consumer = RecordConsumer(adapter, adapter.events_topic, "intake")

    async def read() -> None:
        async for _ in consumer.batches():
            pass

    with pytest.raises(TopicForbidden, match="Authorization"):
        await asyncio.wait_for(read(), 30)
    await consumer.stop()


def is_stopped(pid: int) -> bool:
    states = [
        stat.read_text("ascii").rsplit(")", 1)[1].split()[0]
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


async def test_a_broker_that_stops_answering_and_one_that_dies_are_waited_for(
    own_kafka: KafkaCluster,
) -> None:
    topics = Topics.fresh()
    create_topics_of(own_kafka, topics)
    settings = replace(settings_for(own_kafka, topics), request_timeout=timedelta(seconds=6))
    (broker,) = own_kafka.brokers
    async with RecordProducer(settings) as producer, reading(settings) as (_, read):
        await producer.send(topics.events, b"k", b"before")
        broker.pause()
        await eventually("every thread of the broker has stopped", lambda: is_stopped(broker.pid))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.send(topics.events, b"k", b"late"), 8)
        assert producer.pending_bytes > 0
        broker.resume()
        await asyncio.wait_for(producer.send(topics.events, b"k", b"after a pause"), 30)
        broker.kill()
        waiting = asyncio.create_task(producer.send(topics.events, b"k", b"during"))
        await asyncio.to_thread(own_kafka.restart, broker)
        await asyncio.wait_for(waiting, 40)
        assert producer.pending_bytes == 0
        await eventually("all read", lambda: len({r.offset for r in read}) == 4, SOON)
    by_offset = {r.offset: r.value for r in read}
    assert [by_offset[n] for n in range(4)] == [b"before", b"late", b"after a pause", b"during"]


async def test_a_producer_whose_client_failed_for_good_is_made_anew(settings: KafkaSettings) -> None:
    async with RecordProducer(settings) as producer:
        await producer.send(settings.events_topic, b"k", b"first")
        assert producer._producer is not None
        producer._producer._sender.sender_task.cancel()
        await asyncio.sleep(0)
        await asyncio.wait_for(producer.send(settings.events_topic, b"k", b"second"), 20)


async def test_stop_with_the_broker_away_gives_up_within_seconds(own_kafka: KafkaCluster) -> None:
    topics = Topics.fresh()
    create_topics_of(own_kafka, topics)
    producer = RecordProducer(settings_for(own_kafka, topics))
    await producer.start(topics.events)
    own_kafka.brokers[0].kill()
    sending = asyncio.create_task(producer.send(topics.events, b"k", b"v"))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(producer.stop(), 12)
    sending.cancel()
