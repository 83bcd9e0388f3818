"""A drained worker lets its turns finish, under a lease that goes on being renewed."""

import asyncio
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
