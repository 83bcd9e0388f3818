"""Connections that break at any moment, and a database that is away for a while, cost time and nothing else."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from tests.support.events import KEYS, an_event
from tests.support.running import Site, a_worker
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations

BREAK = """
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and application_name <> 'parley-test'
"""
EVENTS = 60


async def allow(access: Access) -> Allow:
    return Allow()


@pytest.mark.rule("EN-14", "EN-42")
async def test_breaking_every_connection_again_and_again_fails_no_run_and_repeats_no_reply(
    site: Site,
) -> None:
    lab, chance, tried = LabChannel(keys=KEYS), random.Random(3), set[str]()

    async def runs(turn: Turn) -> None:
        await turn.step("take a while", asyncio.sleep, 0.05)
        await turn.set_note("last", turn.event.text)
        if turn.event.event_id not in tried:
            tried.add(turn.event.event_id)
            raise ConnectionError
        assert await turn.get_note("last") is not None
        await turn.reply(turn.event.text)

    agent = Agent("echo", runs=runs, conversation=True, subscriptions=[Subscription("lab")], retries=2)
    app = App("tested", agents=[agent], channels=[lab], conversations=Conversations(authorize=allow))
    async with a_worker(site, app, lease_for=timedelta(seconds=10)) as worker:
        for number in range(EVENTS):
            await site.publish(an_event(text=f"m{number}"))
            await asyncio.sleep(chance.uniform(0, 0.06))
            if number % 3 == 0:
                await site.rows(BREAK)
        await site.settled(EVENTS)
        ready: Any = await worker.health.ready()

    statuses = await site.rows("select status, reason, count(*) as runs from runs group by 1, 2")
    assert statuses == [{"status": "succeeded", "reason": None, "runs": EVENTS}]
    assert sorted(lab.received) == sorted(f"m{number}" for number in range(EVENTS))
    assert all(ready.values()), ready


CONNECTIONS = """
select count(*) from pg_stat_activity
 where datname = current_database() and application_name like 'parley%' and application_name <> 'parley-test'
"""
BESIDE_THE_POOL = 3
"""The lease, the hints and the readiness probe."""


@pytest.mark.rule("EN-41")
async def test_a_replica_takes_no_more_connections_than_documented(site: Site) -> None:
    counts: list[int] = []

    async def runs(turn: Turn) -> None:
        await turn.reply(turn.event.text)
        counts.append(await site.value(CONNECTIONS))

    agent = Agent("echo", runs=runs, conversation=True, subscriptions=[Subscription("lab")])
    app = App(
        "tested",
        agents=[agent],
        channels=[LabChannel(keys=KEYS)],
        conversations=Conversations(authorize=allow),
    )
    async with a_worker(site, app, pool_size=3) as worker:
        for number in range(100):
            await site.publish(an_event(text=f"m{number}"))
            if number % 20 == 0:
                assert (await worker.health.ready())["database"]
        await site.settled(100)

    assert max(counts) <= 3 + BESIDE_THE_POOL
