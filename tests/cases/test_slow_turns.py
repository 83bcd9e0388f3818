"""Faults of slow work: a member that leaves its group over it, and one slow stream in the way of all others."""

import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.support.events import KEYS, an_agent, an_event
from tests.support.running import Child, Site, a_worker, counted
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite
from tests.worker.test_long_turns import generations
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.roles.worker import Worker

LONG_SECONDS = 9.0
QUICK_SECONDS = 2.0
HOT = 120
TURN_SECONDS = 0.04
MIB = 1024 * 1024
pytestmark = pytest.mark.kafka


async def test_pb_07_a_turn_longer_than_every_poll_interval_keeps_both_members_in_their_group(
    site: Site,
) -> None:
    """aio-libs/aiokafka issue 848: long work made the member leave, another took the record, and so on for ever."""
    lab, called = LabChannel(keys=KEYS), list[str]()

    async def runs(turn: Turn) -> None:
        called.append(turn.event.text)
        if turn.event.text == "L1":
            until = time.monotonic() + LONG_SECONDS
            await eventually("it is over", lambda: time.monotonic() > until, timedelta(seconds=30))
        await turn.reply(turn.event.text)

    app = App("tested", agents=[an_agent(runs=runs)], channels=[lab])
    async with a_worker(site, app) as one, a_worker(site, app) as two:
        await eventually("both have their part", partial(all_assigned, one, two), timedelta(seconds=30))
        before = [generations(worker) for worker in (one, two)]
        await site.publish(an_event(text="L1"))
        await eventually("it runs", lambda: called == ["L1"])
        waits = list[float]()
        while "L1" not in lab.received:
            text, published = f"quick {len(waits)}", time.monotonic()
            await site.publish(an_event(text=text))
            await eventually("it is answered", partial(has_received, lab, text))
            waits.append(time.monotonic() - published)
        await site.settled(1 + len(waits))
        after = [generations(worker) for worker in (one, two)]

    assert site.kafka.session_timeout < timedelta(seconds=LONG_SECONDS)
    assert len(waits) > 20
    assert max(waits) < QUICK_SECONDS
    assert called.count("L1") == lab.received.count("L1") == 1
    assert after == before


def all_assigned(*workers: Worker) -> bool:
    """Whether each consumer has a part of its topic, and the parts of all are the whole."""
    parts = [len(consumer.assignment) for worker in workers for consumer in worker._consumers.values()]
    return len(parts) == 2 * len(workers) and all(parts) and sum(parts) == 2 * 4


def has_received(lab: LabChannel, text: str) -> bool:
    return text in lab.received


async def test_pb_08_a_hot_conversation_waits_in_the_queue_and_in_nobodys_way(make_site: MakeSite) -> None:
    """faust-streaming/faust issue 53: a slow stream filled the buffer, and unrelated topics stood still."""
    async with make_site(app="tests.cases.saying:slowly", options={"seconds": TURN_SECONDS}) as site:
        worker = site.start()
        await worker.serving()
        await site.publish(an_event(chat="warm", text="warm"))
        await site.answered(1)
        await site.publish(*(an_event(chat="h", text=f"hot {n}") for n in range(HOT)))
        at_first, waits, depths = resident_bytes(worker), list[float](), list[float]()
        while f"hot {HOT - 1}" not in site.texts():
            text, published = f"q {len(waits)}", time.monotonic()
            await site.publish(an_event(chat="q", text=text))
            await eventually("q is answered", partial(has_said, site, text))
            waits.append(time.monotonic() - published)
            depths.append(counted(await worker.scrape(), "parley_queue_depth"))
        await site.settled(1 + HOT + len(waits), timedelta(seconds=60))
        grown = resident_bytes(worker) - at_first

    assert len(waits) > 5
    assert max(waits) < QUICK_SECONDS, waits
    assert max(depths) > HOT / 10
    assert [text for text in site.texts() if text.startswith("hot")] == [f"hot {n}" for n in range(HOT)]
    assert [text for text in site.texts() if text.startswith("q")] == [f"q {n}" for n in range(len(waits))]
    assert grown < 40 * MIB


def has_said(site: Site, text: str) -> bool:
    return text in site.texts()


def resident_bytes(worker: Child) -> int:
    return int(Path(f"/proc/{worker.pid}/statm").read_text("ascii").split()[1]) * 4096
