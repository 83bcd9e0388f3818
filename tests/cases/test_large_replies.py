"""Faults of size: a reply above what the broker takes in one record, one at the bound, an event close to its limit."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from schemas.event import MAX_EVENT_BYTES
from tests.support.events import KEYS, an_agent, an_event
from tests.support.running import Site, a_worker
from workers.agents.journal import MAX_REPLY_BYTES
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel

BIG = 1_200_000
"""More than the broker takes in one record (a million bytes)."""
pytestmark = pytest.mark.kafka


async def test_pb_57_a_reply_above_the_brokers_limit_is_sent_and_holds_nobody_up(site: Site) -> None:
    """logstash-output-kafka issue 190, emqx pull 15906: a size error was tried for ever, and all waited."""
    roomy = LabChannel("lab", keys=KEYS, size_limit=2 * BIG, size_unit="utf8")
    strict = LabChannel("strict", keys=KEYS, size_limit=100_000, size_unit="utf8")

    async def runs(turn: Turn) -> None:
        if turn.event.text == "big":
            await turn.reply("z" * BIG)
        elif turn.event.text == "large":
            await turn.emit("strict", "c1", "z" * BIG)
        else:
            await turn.reply(turn.event.text[:10])

    agent = an_agent(runs=runs, concurrency_key=lambda event: event.chat)
    app = App("tested", agents=[agent], channels=[roomy, strict])
    near_the_limit = "n" * (MAX_EVENT_BYTES - 2048)
    async with a_worker(site, app, lease_for=timedelta(seconds=15)):
        await site.publish(
            an_event(chat="c1", text="big"),
            an_event(chat="c3", text="large"),
            an_event(chat="c4", text=near_the_limit),
            an_event(chat="c2", text="small c2"),
            an_event(chat="c1", text="small c1"),
        )
        await site.settled(5)

    starts = sorted(text[:10] for text in roomy.received)
    assert starts == ["n" * 10, "small c1", "small c2", "z" * 10]
    assert [len(text) for text in roomy.received if text.startswith("z")] == [BIG]
    assert roomy.received.index("z" * BIG) < roomy.received.index("small c1")
    assert "".join(strict.received) == "z" * BIG
    assert len(roomy.attempts) + len(strict.attempts) == 4 + BIG // 100_000
    ends = await site.rows("select distinct status, retries from runs")
    assert ends == [{"status": "succeeded", "retries": 0}]


@pytest.mark.rule("EN-36")
async def test_the_longest_reply_leaves_the_loop_to_its_neighbours(site: Site) -> None:
    """A renewal of the lease that the loop keeps waiting for a whole lease ends the process."""
    lab = LabChannel("lab", keys=KEYS, size_limit=4096, size_unit="utf16")
    lease_for = timedelta(seconds=3)
    longest = "e\u0301" * (MAX_REPLY_BYTES // 3)

    async def runs(turn: Turn) -> None:
        await turn.reply(longest if turn.event.text == "longest" else "small")

    agent = an_agent(runs=runs, concurrency_key=lambda event: event.chat)
    app = App("tested", agents=[agent], channels=[lab])
    async with a_worker(site, app, lease_for=lease_for), a_watched_loop() as rounds:
        await site.publish(an_event(chat="c1", text="longest"), an_event(chat="c2", text="small"))
        await site.settled(2)

    texts = [text for text in lab.received if text != "small"]
    assert "".join(texts) == longest
    assert max(map(len, texts)) == 4096
    assert timedelta(seconds=max(rounds)) < lease_for / 3


@asynccontextmanager
async def a_watched_loop() -> AsyncIterator[list[float]]:
    """How long the rounds of the loop take meanwhile, in seconds."""
    rounds: list[float] = []

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            rounds.append(time.monotonic() - before)

    watching = asyncio.create_task(watch())
    try:
        yield rounds
    finally:
        watching.cancel()
