"""Kafka batches as no decent client writes them, built by aiokafka's parts and sent as they are."""

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from workers.kafka import KafkaSettings
from workers.kafka.producer import Outgoing

BAD_NAME = b"\xff\xfe\x80"
BATCH_BYTES = 1 << 20


class BadName(str):
    """A header name that goes out as bytes that are no UTF-8."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return BAD_NAME


def a_builder() -> _DefaultRecordBatchBuilderPy:
    """An empty batch of the newest format: no compression, no transaction, no sequence."""
    return _DefaultRecordBatchBuilderPy(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=BATCH_BYTES,
    )


def a_batch(records: list[Outgoing]) -> bytes:
    """The bytes of one batch, offsets from 0 on."""
    builder = a_builder()
    for offset, (key, value, headers) in enumerate(records):
        builder.append(offset, 1_700_000_000_000 + offset, key, value, list(headers))
    return bytes(builder.build())


async def publish_batch(settings: KafkaSettings, records: list[Outgoing], partition: int = 0) -> None:
    """One batch in one partition of the events topic, written by aiokafka's parser in Python."""
    producer = AIOKafkaProducer(bootstrap_servers=settings.servers)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = a_builder()
        for key, value, headers in records:
            batch.append(key=key, value=value, timestamp=None, headers=list(headers))
        await (await producer.send_batch(batch, settings.events_topic, partition=partition))
    finally:
        await producer.stop()
