"""A turn longer than every lease and session time-out runs once, moves no partition, and delays nobody else."""

import time
from datetime import timedelta
from functools import partial

import pytest

from tests.support.events import KEYS, an_event
from tests.support.running import Site, a_worker
from tests.support.waiting import eventually
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.roles.worker import Worker

LONG_SECONDS = 8.0
QUICK_SECONDS = 2.0


def generations(worker: Worker) -> dict[str, tuple[int, frozenset[int]]]:
    """Each consumer's group generation and partitions: both change with every rebalance."""
    found = {}
    for role, consumer in worker._consumers.items():
        client = consumer._life._client()
        found[role] = (client._coordinator.generation, consumer.assignment)
    return found


def has_received(lab: LabChannel, text: str) -> bool:
    return text in lab.received


@pytest.mark.rule("EN-20")
async def test_a_long_turn_is_one_call_without_a_rebalance_beside_quick_ones(site: Site) -> None:
    lab, called = LabChannel(keys=KEYS), list[str]()
    started = time.monotonic()

    async def runs(turn: Turn) -> None:
        called.append(turn.event.text)
        if turn.event.text == "long":
            await eventually(
                "the long turn is over",
                lambda: time.monotonic() - started > LONG_SECONDS,
                timedelta(seconds=20),
            )
        await turn.reply(turn.event.text)

    agent = Agent(
        "echo", runs=runs, subscriptions=[Subscription("lab")], concurrency_key=lambda event: event.chat
    )
    app = App("tested", agents=[agent], channels=[lab])
    async with a_worker(site, app, lease_for=timedelta(seconds=3)) as worker:
        await eventually("joined", lambda: all(c.joined and c.assignment for c in worker._consumers.values()))
        before = generations(worker)
        started = time.monotonic()
        long = an_event(chat="slow", text="long")
        await site.publish(long, an_event(chat="slow", text="behind"))
        await eventually("it runs", lambda: called == ["long"])
        quick = 0
        slowest = 0.0
        while time.monotonic() - started < LONG_SECONDS - 1:
            quick += 1
            text, published = f"quick {quick}", time.monotonic()
            await site.publish(an_event(chat=f"chat-{quick}", text=text))
            await eventually("the quick one is answered", partial(has_received, lab, text))
            slowest = max(slowest, time.monotonic() - published)
        assert "behind" not in called
        await site.settled(quick + 2)
        after = generations(worker)

    assert slowest < QUICK_SECONDS
    assert quick > 5
    assert called.count("long") == called.count("behind") == 1
    assert lab.received[-2:] == ["long", "behind"]
    assert after == before
    assert site.kafka.session_timeout < timedelta(seconds=LONG_SECONDS)
    assert await site.rows("select distinct crashes, retries, status from runs") == [
        {"crashes": 0, "retries": 0, "status": "succeeded"}
    ]
    assert await site.value("select epoch from runs where event_id = $1", long.event_id) == 1
