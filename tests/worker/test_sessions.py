"""A worker whose session was taken over goes on under a new one, whichever of its parts notices first."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

from tests.support.events import KEYS, an_event
from tests.support.running import Site, a_worker
from tests.support.waiting import eventually
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.roles import sessions as of_worker


async def echo(turn: Turn) -> None:
    await turn.reply(turn.event.text)


@pytest.mark.rule("EN-17")
@pytest.mark.parametrize("role", ["turns", "delivery"])
async def test_a_worker_that_was_taken_over_opens_a_new_session_and_goes_on(site: Site, role: str) -> None:
    lab = LabChannel(keys=KEYS)
    app = App(
        "tested", agents=[Agent("echo", runs=echo, subscriptions=[Subscription("lab")])], channels=[lab]
    )
    # The lease is renewed every twenty seconds: it is the role that notices first.
    async with a_worker(
        site, app, roles=frozenset({"intake", role}), lease_for=timedelta(seconds=60)
    ) as worker:
        sessions = worker._sessions
        assert sessions is not None
        await eventually("a session", lambda: sessions.present is not None)
        first = sessions.present
        await site.database.execute("update worker_sessions set dead_at = now()")
        await site.publish(an_event())

        await eventually("another session", lambda: sessions.present is not first)
        assert not worker._stop.is_set()


@pytest.mark.rule("EN-17")
async def test_an_agent_that_is_deaf_to_its_cancellation_does_not_keep_its_worker_from_a_new_session(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_worker, "STOP_WITHIN", timedelta(seconds=0.5))
    let_go, deaf = asyncio.Event(), asyncio.Event()

    async def runs(turn: Turn) -> None:
        if turn.event.text != "deaf":
            await turn.reply(turn.event.text)
        elif not deaf.is_set():
            deaf.set()
            while not let_go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await let_go.wait()
            await turn.reply("too late")

    lab = LabChannel(keys=KEYS)
    app = App(
        "tested", agents=[Agent("echo", runs=runs, subscriptions=[Subscription("lab")])], channels=[lab]
    )
    async with a_worker(
        site, app, roles=frozenset({"intake", "turns", "delivery"}), lease_for=timedelta(seconds=3)
    ):
        await site.publish(an_event(text="deaf"))
        await eventually("it runs", deaf.is_set)
        await site.database.execute("update worker_sessions set dead_at = now()")
        await site.publish(an_event(text="heard"))

        await eventually("the next session works", lambda: lab.received == ["heard"])
        let_go.set()
        await site.settled(2)
    assert lab.received == ["heard"]
