"""What faust does by itself, and why the consumer goes around it: these tests fail when faust is mended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from faust.transport.conductor import Conductor

from tests.kafka.test_consumer import SOON, committed, is_committed, publish
from tests.support.waiting import eventually
from workers.kafka import KafkaSettings
from workers.kafka.faust_app import ConsumerApp, build_app

pytestmark = pytest.mark.kafka


@asynccontextmanager
async def plain_faust(settings: KafkaSettings) -> AsyncIterator[ConsumerApp]:
    app = build_app(settings, settings.group("intake"))
    app.transport.Conductor = Conductor  # type: ignore[misc]  # faust's own
    app.finalize()
    starting = asyncio.create_task(app.start())
    try:
        yield app
    finally:
        await app.stop()
        await asyncio.gather(starting, return_exceptions=True)


async def test_plain_iteration_acknowledges_an_event_whose_handling_raised(settings: KafkaSettings) -> None:
    await publish(settings, settings.events_topic, [b"a"])
    async with plain_faust(settings) as app:
        stream = app.topic(settings.events_topic, value_type=bytes, value_serializer="raw").stream()

        async def handle() -> None:
            async for _ in stream:
                raise LookupError("the database is away")

        with pytest.raises(LookupError):
            await asyncio.wait_for(handle(), 30)
        await eventually("committed all the same", is_committed(settings, 1), SOON)


async def test_a_later_ack_commits_past_an_earlier_event_that_was_never_acknowledged(
    settings: KafkaSettings,
) -> None:
    await publish(settings, settings.events_topic, [b"never acknowledged", b"acknowledged"])
    async with plain_faust(settings) as app:
        topic = app.topic(settings.events_topic, value_type=bytes, value_serializer="raw")
        stream: Any = topic.stream().noack()  # type: ignore[attr-defined]
        events = []

        async def read_two() -> None:
            async for event in stream.events():
                events.append(event)
                if len(events) == 2:
                    return

        await asyncio.wait_for(read_two(), 30)
        assert events[0].message.offset == 0
        events[1].ack()
        await eventually("the commit went past both", is_committed(settings, 2), SOON)
    assert await committed(settings) == 2
