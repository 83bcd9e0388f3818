"""The apps that worker processes run; each is made from its Life."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.support.events import KEYS
from tests.support.worker_process import FatefulChannel, Life, ledger_of
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.port import Capability
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations

LISTENS = [Subscription("lab")]


async def allow(access: Access) -> Allow:
    return Allow()


def lab(life: Life) -> FatefulChannel:
    return FatefulChannel(
        capability=Capability(life.capability),
        keys=KEYS,
        ledger=ledger_of(life),
        transport_timeout=timedelta(seconds=life.transport_timeout_seconds),
    )


def an_app(life: Life, *agents: Agent) -> App:
    return App("tested", agents=agents, channels=[lab(life)], conversations=Conversations(authorize=allow))


def echo(life: Life) -> App:
    """Two bound agents, `echo` and `again`, where the Life's options ask for it; else `echo` alone."""

    def answering(name: str) -> Agent:
        async def runs(turn: Turn) -> None:
            life.note(f"{name} ran {turn.event.event_id}")
            await turn.step("think", lambda: life.note(f"{name} thought about {turn.event.event_id}"))
            await turn.reply(f"{name}: {turn.event.text}")

        return Agent(name, runs=runs, conversation=True, subscriptions=LISTENS)

    return an_app(life, *(answering(name) for name in life.options.get("agents", ["echo"])))


def slow(life: Life) -> App:
    """A turn takes as many seconds as its text says after `slow`; any other is answered at once."""

    async def runs(turn: Turn) -> None:
        life.note(f"ran {turn.event.text}")
        word, _, seconds = turn.event.text.partition(" ")
        if word == "slow":
            await turn.step("wait", asyncio.sleep, float(seconds))
        await turn.reply(turn.event.text)

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))
