"""Events of a test, signed and published to its topic."""

from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from schemas.event import Event
from tests.support.events import sealed
from workers.kafka import KafkaSettings


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
