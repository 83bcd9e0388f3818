"""What the page says reaches a real broker before the page hears 202."""

from datetime import UTC, datetime, timedelta

import pytest
from aiokafka import AIOKafkaConsumer

from schemas.envelope import SealedEvent
from schemas.verdict import verify_record
from tests.api.conftest import Served
from tests.api.desk import KEY, Page
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from workers.api.server import ApiServer
from workers.api.service import create_api
from workers.channels.keys import StaticKeys
from workers.kafka.producer import RecordProducer
from workers.kafka.settings import KafkaSettings

pytestmark = pytest.mark.kafka


@pytest.mark.rule("EN-2")
async def test_a_message_is_on_the_events_topic_when_it_is_accepted(
    chat: Served, kafka: KafkaCluster, topics: Topics
) -> None:
    producer = RecordProducer(KafkaSettings(bootstrap=kafka.bootstrap))

    async def publish(sealed: SealedEvent) -> None:
        await producer.send(topics.events, sealed.key, sealed.value, sealed.headers)

    server = ApiServer(create_api(chat.parts_with(publish)))
    page = Page(f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}")
    await page.visit()
    refused = await page.say("before the producer is started")
    await producer.start(topics.events)
    accepted = await page.say("hello", "m-1")

    async with AIOKafkaConsumer(
        topics.events, **kafka.for_aiokafka(), auto_offset_reset="earliest", group_id=None
    ) as consumer:
        record = await consumer.getone()
    now, age = datetime.now(UTC), timedelta(days=1)
    registry = StaticKeys((KEY,)).verify_keys
    proof = verify_record(record.headers, record.key, record.value, registry, now, age)

    assert (refused.status_code, accepted.status_code) == (503, 202)
    assert (proof.event.event_id, proof.event.text) == (f"{page.chat}:m-1", "hello")
    await page.http.aclose()
    await server.stop()
    await producer.stop()
