"""What one visitor, one moment and one configuration may take."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from fastapi import Request

from tests.api.conftest import Served
from tests.api.desk import SECRET, Page, RecordingBroker
from tests.support.waiting import eventually
from workers.api.body import BodyRoom
from workers.api.feed import MOST_READERS_OF_A_CHAT
from workers.api.parts import ApiParts
from workers.api.problems import Problem
from workers.api.rate import MOST_VISITORS, RateLimit
from workers.api.service import UnusableChannels, create_api
from workers.channels.port import Channel
from workers.channels.web import WebChannel
from workers.telemetry.health import Health
from workers.telemetry.metrics import Metrics


def a_request(body: bytes, *, declared: bool = True) -> Request:
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    headers = [(b"content-length", b"%d" % len(body))] if declared else []

    async def receive() -> dict[str, object]:
        return messages.pop()

    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def test_bodies_that_find_no_room_are_told_to_come_again() -> None:
    room = BodyRoom(limit_bytes=10)
    async with room.body_of(a_request(b"12345678"), 8) as body:
        assert (body, room.held) == (b"12345678", 8)
        async with room.body_of(a_request(b"12"), 8):
            with pytest.raises(Problem) as refused:
                await room.body_of(a_request(b"1", declared=False), 8).__aenter__()

    assert (refused.value.status, refused.value.retry_after_s) == (503, 1)
    assert room.held == 0


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    room = BodyRoom(read_within=timedelta(milliseconds=20))
    slow = Request({"type": "http", "method": "POST", "headers": [(b"content-length", b"5")]}, receive)

    with pytest.raises(Problem) as refused:
        await room.body_of(slow, 8).__aenter__()

    assert (refused.value.status, room.held) == (408, 0)


def test_a_bucket_fills_again_with_time_and_strangers_are_forgotten() -> None:
    now = 0.0
    rate = RateLimit(2, 0.5, lambda: now)

    assert [rate.wait_s("a") for _ in range(3)] == [0, 0, 2]
    now = 2.0
    assert [rate.wait_s("a") for _ in range(2)] == [0, 2]
    for number in range(MOST_VISITORS):
        rate.wait_s(f"stranger {number}")
    assert rate.wait_s("a") == 0


async def test_a_visitor_opens_a_few_pages_and_closed_ones_make_room(chat: Served, page: Page) -> None:
    async def opens() -> Any:
        async with page.http.stream("GET", "/web/events") as stream:
            return stream.status_code == 200

    async with AsyncExitStack() as pages:
        for _ in range(MOST_READERS_OF_A_CHAT):
            await pages.enter_async_context(page.http.stream("GET", "/web/events"))
        assert not await opens()

    await eventually("closed pages make room", opens)


@pytest.mark.parametrize("count", [1, 2])
def test_a_web_channel_needs_a_database_and_the_page_for_itself(count: int) -> None:
    channels: dict[str, Channel] = {
        f"w{n}": WebChannel(f"w{n}", secret=SECRET, keys=None) for n in range(count)
    }
    parts = ApiParts("x", channels, RecordingBroker().publish, None, None, Health(), Metrics())

    with pytest.raises(UnusableChannels):
        create_api(parts)
