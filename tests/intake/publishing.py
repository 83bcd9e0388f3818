"""Events of a test, signed and published to its topic, and what became of them."""

from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from schemas.event import Event
from tests.support.events import sealed
from workers.kafka import KafkaSettings
from workers.postgres.database import Database

AGENTS = ("echo", "helper")
"""Those of the app in `tests.support.crashing`."""


async def publish(
    settings: KafkaSettings, events: Sequence[Event], partitions: Sequence[int] | None = None
) -> None:
    """Publish the signed records of `events`, to the partitions of their keys or to those given."""
    producer = AIOKafkaProducer(bootstrap_servers=settings.servers)
    await producer.start()
    try:
        for number, event in enumerate(events):
            record = sealed(event)
            await producer.send_and_wait(
                settings.events_topic,
                record.value,
                key=record.key,
                headers=list(record.headers),
                partition=None if partitions is None else partitions[number],
            )
    finally:
        await producer.stop()


async def committed(settings: KafkaSettings) -> int:
    """Records of the events topic below the group's committed offsets."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.servers, group_id=settings.group("intake"), enable_auto_commit=False
    )
    await consumer.start()
    try:
        places = [TopicPartition(settings.events_topic, n) for n in range(settings.partitions)]
        return sum([await consumer.committed(place) or 0 for place in places])
    finally:
        await consumer.stop()


async def runs_in(database: Database) -> list[tuple[str, str]]:
    """Agent and event id of every run, sorted."""
    rows = await database.fetch("select agent, event_id from runs order by agent, event_id")
    return [(row["agent"], row["event_id"]) for row in rows]


def one_each(events: Sequence[Event]) -> list[tuple[str, str]]:
    """One run an event and agent."""
    return sorted((agent, event.event_id) for agent in AGENTS for event in events)


async def all_committed(settings: KafkaSettings, records: int) -> bool:
    """Whether exactly so many records lie below the committed offsets."""
    return await committed(settings) == records
