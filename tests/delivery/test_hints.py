"""Commands are hints: they name an address, and losing them or forging them changes nothing."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from schemas.errors import Transient
from tests.support.delivery import Desk, a_conversation, a_reply
from tests.support.waiting import eventually
from workers.delivery.loops.consumer import DeliveryConsumer
from workers.delivery.loops.outbox import Outbox
from workers.kafka.record import Headers, Record

Sent = tuple[bytes | None, bytes | None, Headers]


@dataclass
class Topic:
    """A producer that keeps what it is given, after failing as often as told."""

    failures: int = 0
    records: list[Sent] = field(default_factory=list)

    async def send_many(self, topic: str, records: Iterable[Sent]) -> None:
        if self.failures:
            self.failures -= 1
            raise Transient("away")
        self.records.extend(records)


@dataclass
class FakeBatch:
    records: list[Record]
    acked: bool = False

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.records)

    def ack(self) -> None:
        self.acked = True


def a_record(value: bytes | None) -> Record:
    return Record("channel.deliveries", 0, 1, b"1", value, [], 0.0)


@pytest.mark.rule("EN-30")
async def test_a_published_command_brings_the_address_to_the_sender(desk: Desk) -> None:
    topic = Topic()
    outbox = Outbox(topic, "channel.deliveries")
    conversation = await a_conversation(desk.db)
    outbox.offer(await desk.journal(a_reply(conversation, "r")))
    outbox.stop()
    await outbox.run()
    [(key, value, _)] = topic.records
    batch = FakeBatch(
        [a_record(value), a_record(b"{"), a_record(None), a_record(b'{"version":1,"address_ids":[]}')]
    )

    await DeliveryConsumer(desk.sender, desk.metrics).handle(batch)  # type: ignore[arg-type]

    assert key == str((await desk.addresses())[0]).encode()
    assert batch.acked
    assert desk.sender.waiting == 1


async def test_the_outbox_never_waits_for_kafka_and_counts_what_it_drops(desk: Desk) -> None:
    topic = Topic(failures=1)
    outbox = Outbox(topic, "t", capacity=3, max_batch=2, pause=timedelta(0))
    conversation = await a_conversation(desk.db)
    journalled = [(await desk.journal(a_reply(conversation, "r", step=step)))[0] for step in range(5)]

    outbox.offer(journalled)
    assert outbox.dropped == 2
    running = asyncio.create_task(outbox.run())
    await eventually("one record", lambda: len(topic.records) == 1)
    assert outbox.dropped == 4

    outbox.offer(journalled[:2])
    outbox.stop()
    await running
    assert len(topic.records) == 2


async def test_what_offers_waits_for_room(desk: Desk) -> None:
    sender = desk.sender
    sender.offer(range(50_000, 80_000))
    waiting = asyncio.create_task(sender.room())
    running = asyncio.create_task(sender.run())

    await asyncio.wait_for(waiting, 10)

    assert sender.waiting <= 25_000
    sender.stop()
    await running
