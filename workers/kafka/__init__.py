"""The only owner of faust and aiokafka: raw bytes come in, acknowledged bytes go out."""

from workers.kafka.consumer import Batch, RecordConsumer
from workers.kafka.errors import (
    BrokerAway,
    BrokerLoginFailed,
    ConsumerDied,
    RecordsUnreadable,
    RecordTooLarge,
    TopicForbidden,
    TopicMissing,
)
from workers.kafka.logs import bound_client_logs
from workers.kafka.producer import RecordProducer
from workers.kafka.record import Record
from workers.kafka.settings import KafkaSettings

__all__ = [
    "Batch",
    "BrokerAway",
    "BrokerLoginFailed",
    "ConsumerDied",
    "KafkaSettings",
    "Record",
    "RecordConsumer",
    "RecordProducer",
    "RecordTooLarge",
    "RecordsUnreadable",
    "TopicForbidden",
    "TopicMissing",
    "bound_client_logs",
]
