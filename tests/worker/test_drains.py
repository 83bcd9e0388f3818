"""A drained worker lets its turns finish, under a lease that goes on being renewed."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.events import KEYS, an_event
from tests.support.running import Site, a_worker
from tests.support.waiting import eventually
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.channels.port import Outcome, Outgoing
from workers.roles import worker as worker_module
from workers.roles.worker import Worker

LEASE = timedelta(seconds=1)
READ_LEASE = "select lease_until, ended_at from worker_sessions"


async def is_later(site: Site, before: dict[str, Any]) -> Any:
    (now,) = await site.rows(READ_LEASE)
    return now["lease_until"] > before["lease_until"] + 2 * LEASE


@pytest.mark.rule("EN-40")
async def test_a_turn_under_way_at_a_drain_finishes_though_it_outlasts_the_lease(site: Site) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    async def runs(turn: Turn) -> None:
        started.set()
        await may_end.wait()
        await turn.reply(turn.event.text)

    agent = Agent("echo", runs=runs, subscriptions=[Subscription("lab")])
    app = App("tested", agents=[agent], channels=[LabChannel(keys=KEYS)])
    async with a_worker(site, app, lease_for=LEASE, grace=timedelta(seconds=20)) as worker:
        await site.publish(an_event())
        await started.wait()
        (before,) = await site.rows(READ_LEASE)
        draining = asyncio.create_task(worker.drain())

        await eventually("the lease outlives two of its periods", partial(is_later, site, before))
        may_end.set()
        await draining

    (session,) = await site.rows(READ_LEASE)
    assert session["ended_at"] is not None
    assert await site.rows("select status, reason from runs") == [{"status": "succeeded", "reason": None}]
    assert await site.rows("select count(*) as replies from deliveries") == [{"replies": 1}]


@pytest.mark.rule("EN-40")
async def test_a_drain_ends_though_the_database_takes_no_settlement(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "STOP_WITHIN", timedelta(seconds=1))
    settling = asyncio.Event()

    async def runs(turn: Turn) -> None:
        """Nothing to do."""

    def away(point: str) -> None:
        if point == "settle.before_commit":
            settling.set()
            raise ConnectionResetError

    agent = Agent("idle", runs=runs, subscriptions=[Subscription("lab")])
    app = App("tested", agents=[agent], channels=[LabChannel(keys=KEYS)])
    worker = Worker(app, replace(site.life.settings(), grace=timedelta(seconds=1)), reached=away)
    await worker.start()
    await site.publish(an_event())
    await settling.wait()

    async with asyncio.timeout(20):
        await worker.drain()

    assert await site.rows("select status from runs") == [{"status": "running"}]


@pytest.mark.rule("EN-40")
async def test_the_whole_drain_takes_no_longer_than_the_grace_period(site: Site) -> None:
    started = asyncio.Event()
    released = asyncio.Event()

    async def runs(turn: Turn) -> None:
        started.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    agent = Agent("stuck", runs=runs, subscriptions=[Subscription("lab")])
    app = App("tested", agents=[agent], channels=[LabChannel(keys=KEYS)])
    grace = timedelta(seconds=3)
    worker = Worker(app, replace(site.life.settings(), grace=grace))
    await worker.start()
    await site.publish(an_event())
    await started.wait()

    began = time.monotonic()
    await worker.drain()
    took = timedelta(seconds=time.monotonic() - began)
    released.set()

    assert grace / 2 < took < grace + timedelta(seconds=2)
    (session,) = await site.rows(READ_LEASE)
    assert session["ended_at"] is not None


@pytest.mark.rule("EN-40", "EN-27")
@pytest.mark.parametrize(
    ("timeout", "asks_to_cancel", "ending"),
    [
        (timedelta(seconds=2), False, ("failed", "turn timeout")),
        (timedelta(minutes=1), True, ("cancelled", "cancelled")),
    ],
    ids=["timeout", "cancel"],
)
async def test_timeouts_and_cancels_are_looked_at_during_a_drain(
    site: Site, timeout: timedelta, asks_to_cancel: bool, ending: tuple[str, str]
) -> None:
    started = asyncio.Event()

    async def runs(turn: Turn) -> None:
        started.set()
        await asyncio.Event().wait()

    agent = Agent("waits", runs=runs, subscriptions=[Subscription("lab")], timeout=timeout)
    app = App("tested", agents=[agent], channels=[LabChannel(keys=KEYS)])
    async with a_worker(site, app, grace=timedelta(seconds=90)) as worker:
        await site.publish(an_event())
        await started.wait()
        draining = asyncio.create_task(worker.drain())
        if asks_to_cancel:
            await site.rows("update runs set cancel_requested_at = parley_now()")
        async with asyncio.timeout(60):
            await draining

    assert [tuple(row.values()) for row in await site.rows("select status, reason from runs")] == [ending]


@pytest.mark.rule("EN-40")
async def test_a_send_under_way_at_a_drain_gets_its_answer(site: Site) -> None:
    sending = asyncio.Event()

    class Slow(LabChannel):
        async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
            sending.set()
            await asyncio.sleep(1)
            return await super().send(outgoing, timeout)

    async def runs(turn: Turn) -> None:
        await turn.reply("hello")

    agent = Agent("echo", runs=runs, subscriptions=[Subscription("lab")])
    app = App("tested", agents=[agent], channels=[Slow(keys=KEYS)])
    async with a_worker(site, app, grace=timedelta(seconds=15)) as worker:
        await site.publish(an_event())
        await sending.wait()
        await worker.drain()

    assert await site.rows("select state, attempt from deliveries") == [{"state": "sent", "attempt": 1}]
