"""However a rebalance falls between two fetches, every record that was not committed comes again."""

import asyncio
import random
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata

from tests.kafka.test_consumer import SOON, publish, reading
from tests.support.waiting import eventually
from workers.kafka import KafkaSettings, Record, RecordConsumer

pytestmark = pytest.mark.kafka

RECORDS = 40


def rejoin(consumer: RecordConsumer) -> None:
    """Let the member join its group anew, as after the death of another."""
    assert consumer._app is not None
    member = consumer._app.member
    member._thread.thread_loop.call_soon_threadsafe(member.client._coordinator.request_rejoin)


def generation(consumer: RecordConsumer) -> int:
    assert consumer._app is not None
    return int(consumer._app.consumer_generation_id)


def is_newer(consumer: RecordConsumer, than: int) -> bool:
    return generation(consumer) > than


def resume_late(consumer: RecordConsumer, pause: float) -> None:
    """Let faust take so many seconds from an assignment to the first record."""
    app: Any = consumer._app
    app.tables.recovery.recovery_delay = pause


def of_generation(read: Iterable[Record], number: int) -> list[tuple[int, int]]:
    """Places of what was read in one generation, in order."""
    return sorted((record.partition, record.offset) for record in read if record.generation == number)


@pytest.mark.rule("EN-7")
@pytest.mark.parametrize("pause", [0.0, 0.4])
async def test_records_that_were_never_committed_come_again_after_each_rebalance(
    settings: KafkaSettings, pause: float
) -> None:
    """faust resumes only `pause` seconds after the assignment: a fetch begun before it has long read the new one."""
    luck = random.Random(3)
    await publish(settings, settings.events_topic, [b"%d" % n for n in range(RECORDS)], key=None)
    async with reading(settings, acks=False) as (consumer, read):
        await eventually("all", lambda: len(read) == RECORDS, SOON)
        everything = of_generation(read, generation(consumer))
        resume_late(consumer, pause)
        for _ in range(5):
            before = generation(consumer)
            for _ in range(luck.randint(1, 3)):
                rejoin(consumer)
                await asyncio.sleep(luck.choice([0, 0.05, 0.3]))
            await eventually("a new generation", partial(is_newer, consumer, before), SOON)
            await eventually(
                "all of it again", lambda: of_generation(read, generation(consumer)) == everything, SOON
            )
            assert consumer.outstanding == RECORDS
            assert {record.generation for record in read if not record.revoked} == {generation(consumer)}


async def test_only_what_was_not_committed_comes_again(settings: KafkaSettings) -> None:
    await publish(settings, settings.events_topic, [b"%d" % n for n in range(RECORDS)], key=None)
    async with reading(settings, acks=False) as (consumer, read):
        await eventually("all", lambda: len(read) == RECORDS, SOON)
        resume_late(consumer, 0.4)
        consumer.ack(record for record in read if record.partition < 2 and record.offset < 3)
        left = sorted((r.partition, r.offset) for r in read if r.partition >= 2 or r.offset >= 3)

        before = generation(consumer)
        rejoin(consumer)
        await eventually("a new generation", lambda: generation(consumer) > before, SOON)
        await eventually("the rest again", lambda: of_generation(read, generation(consumer)) == left, SOON)


async def test_records_thrown_away_in_the_middle_of_a_generation_come_again(settings: KafkaSettings) -> None:
    await publish(settings, settings.events_topic, [b"%d" % n for n in range(RECORDS)], key=None)
    async with reading(settings, acks=False) as (consumer, read):
        await eventually("all", lambda: len(read) == RECORDS, SOON)
        consumer.ack(read[:5])
        assert consumer._queue is not None

        consumer._queue.clear()

        await eventually("again", lambda: len({id(r) for r in read}) >= 2 * RECORDS - 5, SOON)
        consumer.ack(read)
        assert consumer.outstanding == 0


async def test_a_cluster_that_names_no_broker_yet_is_waited_for(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers so for a moment after its start; aiokafka's coordinator dies of it."""
    real, answers = ClusterMetadata.brokers, iter(range(6))
    monkeypatch.setattr(
        ClusterMetadata, "brokers", lambda self: real(self) if next(answers, 9) > 5 else set[Any]()
    )
    await publish(settings, settings.events_topic, [b"a"])
    answers = iter(range(6))
    async with reading(settings) as (_, read):
        await eventually("it is read", lambda: len(read) == 1, timedelta(seconds=40))
