"""Real processes, really killed, on a real broker and a real database: an event is one run."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from aiokafka import AIOKafkaProducer

from schemas.event import Event
from tests.intake.conftest import settings_for
from tests.intake.publishing import all_committed, one_each, publish, runs_in
from tests.support.crashing import Spawn, an_order
from tests.support.events import an_event, sealed
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics, create_topics_of
from tests.support.waiting import eventually
from workers.kafka import KafkaSettings
from workers.kafka.reader import read_topic
from workers.postgres.database import Database

SOON = timedelta(seconds=40)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = await Database.open(database_url, max_size=2)
    yield database
    await database.close()


@pytest.mark.rule("EN-7", "EN-10")
@pytest.mark.parametrize("point", ["admission.before_commit", "admission.committed", "intake.acknowledged"])
async def test_a_worker_killed_between_its_commit_and_its_offset_repeats_nothing_and_loses_nothing(
    settings: KafkaSettings, database: Database, database_url: str, spawn_worker: Spawn, point: str
) -> None:
    events = [an_event() for _ in range(30)]
    await publish(settings, events)
    order = an_order(settings, database_url)
    dying = spawn_worker(replace(order, dies_at=point))
    dying.wait_until_killed()
    left = await runs_in(database)

    spawn_worker(order)
    await eventually("all offsets are committed", lambda: all_committed(settings, 30), SOON)

    assert bool(left) is (point != "admission.before_commit")
    assert await runs_in(database) == one_each(events)
    assert await count(database, "reservations") == 60


@pytest.mark.rule("EN-10", "EN-13")
async def test_consumption_reset_to_earliest_repeats_nothing(
    settings: KafkaSettings, database: Database, database_url: str, spawn_worker: Spawn
) -> None:
    events = [an_event() for _ in range(20)]
    await publish(settings, events)
    first = spawn_worker(an_order(settings, database_url))
    await eventually("all offsets are committed", lambda: all_committed(settings, 20), SOON)
    first.close()
    await database.execute("update runs set status = 'succeeded', finished_at = now()")
    await database.execute("delete from ready")

    again = replace(settings, group_prefix=f"{settings.group_prefix}-again")
    spawn_worker(an_order(again, database_url))
    await eventually("all offsets are committed", lambda: all_committed(again, 20), SOON)

    assert await runs_in(database) == one_each(events)
    assert (await count(database, "ready"), await count(database, "reservations")) == (0, 40)


@pytest.mark.rule("EN-13")
async def test_ten_simultaneous_copies_over_three_replicas_are_one_run(
    kafka: KafkaCluster, database: Database, database_url: str, spawn_worker: Spawn
) -> None:
    """Elsewhere an id was known only once its first execution had ended (dbos-transact-py issue 544).

    The copies lie in all partitions, so that every replica has some of them.

    faust gives a member ceil(partitions / members) partitions at most: of four, three members would get 2, 2 and 0.
    """
    topics = Topics.fresh()
    create_topics_of(kafka, topics, partitions=6)
    settings = replace(settings_for(kafka, topics), partitions=6)
    replicas = [spawn_worker(an_order(settings, database_url)) for _ in range(3)]
    warm: list[Event] = []

    async def every_replica_works() -> bool:
        more = [an_event() for _ in range(settings.partitions)]
        warm.extend(more)
        await publish(settings, more, range(settings.partitions))
        await asyncio.sleep(0.5)
        return all("event.admitted" in replica.text() for replica in replicas)

    await eventually("every replica works", every_replica_works, SOON)

    events = [an_event(message_id=f"m{n}") for n in range(10)]
    copies = [event for event in events for _ in range(10)]
    await asyncio.gather(
        *[
            publish(settings, copies[n::5], [(n + k) % settings.partitions for k in range(20)])
            for n in range(5)
        ]
    )
    await eventually("all offsets are committed", lambda: all_committed(settings, 100 + len(warm)), SOON)

    assert await runs_in(database) == one_each([*warm, *events])
    assert sum("event.duplicate" in replica.text() for replica in replicas) >= 2


@pytest.mark.rule("EN-5")
async def test_the_offset_moves_on_behind_what_is_refused(
    settings: KafkaSettings, database: Database, database_url: str, spawn_worker: Spawn
) -> None:
    """Elsewhere one undecodable value ended the stream without a line in the log (robinhood/faust issue 586)."""
    good = [an_event() for _ in range(8)]
    producer = AIOKafkaProducer(bootstrap_servers=settings.servers, max_request_size=2**21)
    await producer.start()
    for number, event in enumerate(good):
        bad = [b"\xff\xfe", None, b"{}", b"x" * 950_000][number % 4]
        await producer.send_and_wait(settings.events_topic, bad, key=b"k", partition=number % 4)
        record = sealed(event)
        await producer.send_and_wait(
            settings.events_topic,
            record.value,
            key=record.key,
            headers=list(record.headers),
            partition=number % 4,
        )
    await producer.stop()

    spawn_worker(an_order(settings, database_url))
    await eventually("all offsets are committed", lambda: all_committed(settings, 16), SOON)

    letters = [record async for record in read_topic(settings, settings.dead_topic)]
    reasons = sorted(dict(record.headers)["parley-reason"].decode() for record in letters)
    assert reasons == sorted(["invalid_json", "undecodable", "unauthenticated", "too_large"] * 2)
    assert {(record.key or b"").decode() for record in letters} == {
        f"{settings.events_topic}:{partition}:{offset}" for partition in range(4) for offset in (0, 2)
    }
    assert await runs_in(database) == one_each(good)


async def count(database: Database, table: str) -> int:
    return int((await database.fetch(f"select count(*) from {table}"))[0][0])
