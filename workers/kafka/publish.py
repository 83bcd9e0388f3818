"""One record, acknowledged by the in-sync replicas, with the position that it got: for commands, not for loops."""

from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from workers.kafka.broker import require_topics
from workers.kafka.errors import BrokerAway, RecordTooLarge, TopicForbidden
from workers.kafka.record import Headers
from workers.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record stands."""

    topic: str
    partition: int
    offset: int


async def publish(
    settings: KafkaSettings, topic: str, key: bytes, value: bytes, headers: Headers
) -> Position:
    """Send one record and wait for its acknowledgement.

    Raises BrokerAway (it may have been written), BrokerLoginFailed, TopicMissing, TopicForbidden, RecordTooLarge.
    """
    await require_topics(settings, (topic,))
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.servers,
        client_id="parley",
        acks="all",
        enable_idempotence=True,
        max_request_size=settings.record_bytes,
        request_timeout_ms=int(settings.request_timeout.total_seconds() * 1000),
        **settings.client_options(),
    )
    try:
        await producer.start()
        written = await producer.send_and_wait(topic, value, key=key, headers=headers)
    except MessageSizeTooLargeError as error:
        raise RecordTooLarge(topic, len(value)) from error
    except TopicAuthorizationFailedError as error:
        raise TopicForbidden(topic, "not allowed to write it") from error
    except (KafkaError, TimeoutError, OSError) as error:
        raise BrokerAway(settings.bootstrap, f"{type(error).__name__}: {error}") from error
    finally:
        await producer.stop()
    return Position(topic, written.partition, written.offset)
