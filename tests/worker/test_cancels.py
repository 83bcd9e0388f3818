"""A cancelled run stops and says nothing more; what became of a message under way is found by reconciliation."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.events import KEYS, an_event
from tests.support.running import Site, a_worker
from tests.support.waiting import eventually
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.channels.port import Capability, Outcome, Outgoing
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.operations.runs import cancel_runs


async def allow(access: Access) -> Allow:
    return Allow()


class GatedChannel(LabChannel):
    """Requests wait at a gate; the peer has each only when it has passed."""

    def __init__(self, capability: Capability = Capability.IDEMPOTENT) -> None:
        super().__init__(keys=KEYS, capability=capability, transport_timeout=timedelta(seconds=2.5))
        self.waiting = asyncio.Event()
        self.gate = asyncio.Event()

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        self.waiting.set()
        await self.gate.wait()
        return await super().send(outgoing, timeout)


def talkative(stopped: list[str]) -> Agent:
    """Says three things at once, then waits until it is stopped; answers `short` in one word."""

    async def runs(turn: Turn) -> None:
        if turn.event.text == "short":
            await turn.reply("ok")
            return
        for number in range(3):
            await turn.reply(f"{turn.event.text} {number}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(turn.event.text)
            raise

    return Agent("echo", runs=runs, conversation=True, subscriptions=[Subscription("lab")])


def an_app(lab: LabChannel, agent: Agent) -> App:
    return App("tested", agents=[agent], channels=[lab], conversations=Conversations(authorize=allow))


async def cancel(site: Site) -> None:
    [run] = await site.rows("select id from runs where status = 'running'")
    [result] = await cancel_runs(site.database, [UUID(str(run["id"]))], "tester")
    assert result.outcome == "requested"


async def deliveries(site: Site) -> list[tuple[str, str | None]]:
    rows = await site.rows("select state, reason from deliveries order by position")
    return [(row["state"], row["reason"]) for row in rows]


async def until_three(site: Site) -> None:
    async def journalled() -> Any:
        return await site.value("select count(*) from deliveries") == 3

    await eventually("three replies are journalled", journalled)


@pytest.mark.rule("EN-27")
@pytest.mark.parametrize(
    ("capability", "in_time", "ends"),
    [
        (Capability.IDEMPOTENT, True, ("sent", None)),
        (Capability.IDEMPOTENT, False, ("unknown", "cancelled")),
        (Capability.LOOK_UP_DEFINITE, True, ("sent", None)),
    ],
)
async def test_what_is_being_sent_ends_by_reconciliation_and_a_late_answer_is_only_logged(
    site: Site, capability: Capability, in_time: bool, ends: tuple[str, str | None]
) -> None:
    lab, stopped = GatedChannel(capability), list[str]()
    async with a_worker(site, an_app(lab, talkative(stopped)), lease_for=timedelta(seconds=3)):
        await site.publish(an_event(chat="c", text="long"))
        await until_three(site)
        await lab.waiting.wait()

        await cancel(site)
        await eventually("the agent stopped", lambda: stopped == ["long"])

        async def doubted() -> Any:
            return (await deliveries(site))[0] == ("uncertain", "cancelled")

        await eventually("the send under way is in doubt", doubted)
        if in_time:
            lab.gate.set()
        await site.settled(1)
        lab.gate.set()

    assert await deliveries(site) == [ends, *[("failed", "abandoned: run cancelled")] * 2]
    assert await site.rows("select status, reason from runs") == [
        {"status": "cancelled", "reason": "cancelled"}
    ]
    assert lab.received == (["long 0"] if in_time else [])
    late = await site.rows("select kind, outcome from delivery_attempts where late")
    assert late == [{"kind": "send", "outcome": "sent" if in_time else "uncertain"}]


@pytest.mark.rule("EN-27")
async def test_a_cancelled_run_lets_its_conversation_go_on_and_sends_nothing_more(site: Site) -> None:
    lab, stopped = LabChannel(keys=KEYS), list[str]()
    app = an_app(lab, talkative(stopped))
    async with a_worker(site, app, roles=frozenset({"intake", "turns"})):
        await site.publish(an_event(chat="c", text="long"), an_event(chat="c", text="short"))
        await until_three(site)
        await cancel(site)

        async def ended() -> Any:
            return await site.value("select count(*) from runs where finished_at is not null") == 2

        await eventually("both runs ended", ended)
    async with a_worker(site, app, roles=frozenset({"delivery"})):
        await site.settled(2)

    assert stopped == ["long"]
    assert lab.received == ["ok"]
    items = await site.rows("select kind, status, body from items order by id")
    assert [(item["kind"], item["status"]) for item in items if item["kind"] == "reply"] == [
        *[("reply", "failed")] * 3,
        ("reply", "sent"),
    ]


@pytest.mark.rule("EN-27")
async def test_replies_go_out_once_whatever_becomes_of_their_turn(site: Site) -> None:
    lab, tries = LabChannel(keys=KEYS), list[str]()

    async def runs(turn: Turn) -> None:
        tries.append(turn.event.text)
        await turn.reply(f"first {turn.event.text}")
        await eventually(
            "it has arrived while the turn goes on", lambda: f"first {turn.event.text}" in lab.received
        )
        if turn.event.text == "fails":
            raise ValueError
        if tries.count("retries") == 1:
            raise ConnectionError
        await turn.reply(f"second {turn.event.text}")

    agent = Agent("echo", runs=runs, subscriptions=[Subscription("lab")])
    async with a_worker(site, an_app(lab, agent)):
        await site.publish(an_event(text="retries"), an_event(text="fails"))
        await site.settled(2)

    assert sorted(lab.received) == ["first fails", "first retries", "second retries"]
    assert sorted(tries) == ["fails", "retries", "retries"]
    assert sorted(row["status"] for row in await site.rows("select status from runs")) == [
        "failed",
        "succeeded",
    ]
