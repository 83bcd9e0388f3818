"""A topic read once from its beginning to where it ended when the reading began; no group, no offset, no trace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from workers.kafka.broker import require_topics
from workers.kafka.errors import BrokerAway, RecordsUnreadable, TopicForbidden
from workers.kafka.record import Record
from workers.kafka.settings import KafkaSettings
from workers.kafka.unpacking import tolerate

_POLL_MS = 500
_POLL_RECORDS = 500
_SILENT_SECONDS = 30.0


async def read_topic(settings: KafkaSettings, topic: str) -> AsyncIterator[Record]:
    """Every record of `topic` up to the present ends, in the order of each partition.

    Raises BrokerAway, BrokerLoginFailed, TopicMissing, TopicForbidden, RecordsUnreadable.
    """
    states = await require_topics(settings, (topic,))
    partitions = [TopicPartition(topic, number) for number in range(states[topic].partitions)]
    async with _consumer(settings, topic) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        await consumer.seek_to_beginning(*partitions)
        clock = asyncio.get_running_loop().time
        unread, silent_since = set(partitions), clock()
        while unread := {place for place in unread if await consumer.position(place) < ends[place]}:
            consumer.resume(*unread)
            consumer.pause(*(place for place in partitions if place not in unread))
            batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS)
            silent_since = clock() if batches else silent_since
            if clock() - silent_since > _SILENT_SECONDS:
                raise BrokerAway(settings.bootstrap, f"no record of {topic} came for {_SILENT_SECONDS:g} s")
            for place, messages in batches.items():
                for message in messages:
                    if message.offset < ends[place]:
                        yield Record(
                            topic=topic,
                            partition=message.partition,
                            offset=message.offset,
                            key=message.key,
                            value=message.value,
                            headers=[(name, content or b"") for name, content in message.headers],
                            timestamp=message.timestamp / 1000,
                        )


@asynccontextmanager
async def _consumer(settings: KafkaSettings, topic: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.servers,
        client_id="parley",
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=settings.fetch_partition_bytes,
        request_timeout_ms=int(settings.request_timeout.total_seconds() * 1000),
        **settings.client_options(),
    )
    try:
        await consumer.start()
        tolerate(consumer._fetcher, _give_up)
        yield consumer
    except TopicAuthorizationFailedError as error:
        raise TopicForbidden(topic, "not allowed to read it") from error
    except (KafkaError, TimeoutError, OSError) as error:
        raise BrokerAway(settings.bootstrap, f"{type(error).__name__}: {error}") from error
    finally:
        await consumer.stop()


def _give_up(place: TopicPartition, offset: int, problem: str) -> None:
    raise RecordsUnreadable(place.topic, place.partition, offset, problem)
