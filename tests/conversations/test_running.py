"""A program runs its app: rest, the end of the block, whose pool it is, and what the engine says when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.events import KEYS, an_event
from workers.admission.policy import Admitted, Duplicate
from workers.agents.agent import Agent, Subscription
from workers.agents.errors import AgentFailed
from workers.agents.turn import Turn
from workers.app import Access, Allow, App, Conversations
from workers.channels.lab import Fault, LabChannel
from workers.engine.engine import Engine
from workers.engine.errors import EngineStopped, StoreAway
from workers.postgres.database import Database
from workers.roles.pools import DifferentDatabases
from workers.roles.running import running
from workers.roles.settings import InvalidSettings, Settings
from workers.telemetry.metrics import Metrics
from workers.testing.services import place


async def allow(access: Access) -> Allow:
    return Allow()


def app_of(runs: Any, lab: LabChannel) -> App:
    helper = Agent("helper", runs=runs, conversation=True, subscriptions=[Subscription("lab")])
    return App("running", agents=[helper], channels=[lab], conversations=Conversations(authorize=allow))


@dataclass
class Ground:
    """Settings of a worker without intake, and the channel."""

    settings: Settings
    lab: LabChannel


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    async with place() as where:
        settings = Settings(
            where.database_url,
            where.kafka,
            roles=frozenset({"turns", "delivery"}),
            grace=timedelta(seconds=20),
            http_port=0,
        )
        yield Ground(settings, LabChannel(keys=KEYS, size_limit=400))


async def bring_in(engine: Engine, ground: Ground, **event: Any) -> Any:
    return await engine.channel(ground.lab).dispatch_conversation("helper", an_event(**event))


@pytest.mark.rule("CM-68")
async def test_the_end_waits_for_turns_and_journal_writes_and_leaves_a_given_pool_open(
    ground: Ground,
) -> None:
    working, go_on = asyncio.Event(), asyncio.Event()

    async def slow(turn: Turn) -> None:
        working.set()
        await go_on.wait()
        await turn.set_note("kept", "at the very end")
        await turn.reply("done at the very end")

    pool = await Database.open(ground.settings.database_url, max_size=4)
    async with running(app_of(slow, ground.lab), ground.settings, pool) as engine:
        await bring_in(engine, ground)
        await working.wait()
        asyncio.get_running_loop().call_later(0.5, go_on.set)

    try:
        rows = await pool.fetch(
            "select (select status from runs) as run, (select body from notes) as note,"
            " (select count(*) from turns) as turns,"
            " (select count(*) from deliveries) as replies,"
            " (select count(*) from worker_sessions where ended_at is null) as sessions"
        )
        assert tuple(rows[0]) == ("succeeded", "at the very end", 0, 1, 0)
    finally:
        await pool.close()


@pytest.mark.rule("CM-69")
async def test_a_pool_over_another_database_than_the_settings_is_refused_at_start(
    ground: Ground, database_url: str
) -> None:
    elsewhere = await Database.open(database_url, max_size=2)
    try:
        with pytest.raises(DifferentDatabases, match="must be in one"):
            async with running(app_of(allow, ground.lab), ground.settings, elsewhere):
                raise AssertionError("it started")
    finally:
        await elsewhere.close()


@pytest.mark.rule("CM-8")
async def test_without_a_database_a_program_does_not_start(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARLEY_DATABASE_URL", raising=False)

    with pytest.raises(InvalidSettings, match="PARLEY_DATABASE_URL is not set"):
        async with running(app_of(allow, ground.lab)):
            raise AssertionError("it started")


@pytest.mark.rule("CM-77")
async def test_idle_waits_for_turns_and_replies_and_not_for_what_is_due_later(ground: Ground) -> None:
    go_on, tries = asyncio.Event(), 0

    async def runs(turn: Turn) -> None:
        nonlocal tries
        tries += 1
        if turn.event.text == "later":
            raise AgentFailed("not now", retryable=True, retry_after=timedelta(hours=1))
        await go_on.wait()
        await turn.reply("here")

    ground.lab.fail_next(Fault("unreachable"))
    async with running(app_of(runs, ground.lab), ground.settings) as engine:
        await engine.idle()
        await bring_in(engine, ground, text="now")
        await bring_in(engine, ground, text="later")
        resting = asyncio.create_task(engine.idle())
        done, _ = await asyncio.wait({resting}, timeout=0.5)
        assert not done

        go_on.set()
        async with asyncio.timeout(20):
            await resting
        async with asyncio.timeout(20):
            while not ground.lab.received:  # noqa: ASYNC110  # the send that failed is due a moment later
                await asyncio.sleep(0.02)
            await engine.idle()

    assert (ground.lab.received, tries) == (["here"], 2)


@pytest.mark.rule("CM-77")
async def test_an_ended_engine_and_an_absent_database_say_so_and_the_event_may_come_again(
    ground: Ground,
) -> None:
    async def echo(turn: Turn) -> None:
        await turn.reply(turn.event.text)

    app, event = app_of(echo, ground.lab), an_event(text="once")
    async with running(app, ground.settings) as engine:
        first = await engine.channel(ground.lab).dispatch_conversation("helper", event)
        await engine.idle()
    for call in (
        engine.channel(ground.lab).dispatch_conversation("helper", an_event()),
        engine.dispatch("helper"),
        engine.idle(),
    ):
        with pytest.raises(EngineStopped):
            await call

    away = await Database.open("postgresql://postgres@127.0.0.1:9/nowhere", min_size=0)
    cut_off = Engine(app, away, Metrics(), idempotency_ttl=timedelta(days=7), patience=timedelta(seconds=0.1))
    with pytest.raises(StoreAway):
        await cut_off.channel(ground.lab).dispatch_conversation("helper", event)
    await away.close()

    kafka = replace(ground.settings.kafka, group_prefix="again")
    async with running(app, replace(ground.settings, kafka=kafka)) as engine:
        again = await engine.channel(ground.lab).dispatch_conversation("helper", event)
        await engine.idle()
    assert isinstance(first, Admitted)
    assert again == Duplicate(first.run_id)
    assert ground.lab.received == ["once"]
