"""The in-process door: the registered channel object proves an event, and nothing else does."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from schemas.event import Event
from schemas.identity import Identity
from tests.support.events import an_event
from workers.admission.policy import Admitted, Duplicate
from workers.agents.agent import Agent, Subscription
from workers.agents.errors import UnknownAgent
from workers.agents.turn import Turn
from workers.app import Access, Allow, App, Conversations, Deny, InvalidApp
from workers.channels.lab import LabChannel
from workers.engine.engine import ChannelDoor, Denied
from workers.engine.errors import (
    ConcurrencyKeyDiffers,
    EventRefused,
    ForeignEvent,
    NoMemory,
    NotSubscribed,
    NotTheRegisteredChannel,
)
from workers.memory.access import PolicyUnavailable
from workers.testing import TestApp

LISTENS = [Subscription("lab")]


async def recite(turn: Turn) -> None:
    """Says what it was told, and what it remembers."""
    past = " / ".join(f"{exchange.role}: {exchange.text}" for exchange in turn.history)
    await turn.reply(f"{turn.event.text} <- {past or 'nothing'}")


async def allow(access: Access) -> Allow | Deny:
    return Deny("not them") if access.principal.id == "mallory" else Allow()


def an_app(
    *more: Agent, authorize: Callable[[Access], Any] = allow, channel: LabChannel | None = None
) -> App:
    helper = Agent("helper", runs=recite, conversation="memory", subscriptions=LISTENS)
    return App(
        "door",
        agents=[helper, *more],
        channels=[channel or LabChannel(size_limit=400), LabChannel("other")],
        conversations=Conversations(authorize=authorize),
    )


async def count(chat: TestApp, table: str) -> int:
    row = await chat.database.fetchrow(f"select count(*) from {table}")
    assert row is not None
    return int(row[0])


@pytest.fixture
async def shared() -> AsyncIterator[TestApp]:
    """A bound helper that recites its past, and an agent without memory."""
    async with TestApp(
        an_app(Agent("plain", runs=recite, subscriptions=[Subscription("lab", "poke")]))
    ) as chat:
        yield chat


@pytest.mark.rule("CM-77")
async def test_the_registered_channel_binds_its_events_and_the_next_one_recalls() -> None:
    app = an_app()
    lab = app.channels["lab"]
    async with TestApp(app) as chat:
        first = await chat.channel(lab).dispatch_conversation("helper", an_event(chat="c", text="one"))
        await chat.idle()
        await chat.channel(chat.channels["lab"]).dispatch_conversation(
            "helper", an_event(chat="c", text="two")
        )
        await chat.idle()

        assert isinstance(first, Admitted)
        assert await chat.replies(chat="c", at_least=2) == [
            "one <- nothing",
            "two <- user: one / assistant: one <- nothing",
        ]
        assert {run.status for run in await chat.runs()} == {"succeeded"}


class Subclass(LabChannel):
    """A look-alike that is a channel in every way."""


class Equal(LabChannel):
    """A look-alike that says it is equal to anything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@pytest.mark.rule("CM-77", "CM-19")
@pytest.mark.parametrize(
    "look_alike",
    [
        lambda lab: "lab",
        lambda lab: copy.copy(lab),
        lambda lab: LabChannel("lab", keys=lab.keys),
        lambda lab: Subclass("lab", keys=lab.keys),
        lambda lab: Equal("lab", keys=lab.keys),
        lambda lab: type("Named", (), {"name": "lab"})(),
        lambda lab: None,
    ],
    ids=["name", "copy", "same arguments", "subclass", "equal to all", "named", "nothing"],
)
async def test_only_the_registered_object_opens_a_channel(
    shared: TestApp, look_alike: Callable[[LabChannel], Any]
) -> None:
    with pytest.raises(NotTheRegisteredChannel, match="the very object that the app was built with"):
        shared.channel(look_alike(shared.channels["lab"]))
    with pytest.raises(NotTheRegisteredChannel):
        shared.engine.channel(look_alike(shared.channels["lab"]))
    with pytest.raises(NotTheRegisteredChannel):
        ChannelDoor(shared.engine, look_alike(shared.channels["lab"]))


@pytest.mark.rule("CM-20")
async def test_the_concurrency_key_is_derived_and_another_one_is_refused(shared: TestApp) -> None:
    door = shared.channel(shared.channels["lab"])
    event = an_event(account="main", chat="room/1", thread="t", audience="team")
    derived = Identity("memory", "lab", "main", "room%2F1/t", "team").key().decode()
    before = await count(shared, "runs")

    for wrong in ("", "memory", "room/1", derived.replace("team", "direct"), derived + " "):
        with pytest.raises(ConcurrencyKeyDiffers):
            await door.dispatch_conversation("helper", event, concurrency_key=wrong)
    assert await count(shared, "runs") == before

    assert isinstance(await door.dispatch_conversation("helper", event, concurrency_key=derived), Admitted)
    assert isinstance(await door.dispatch_conversation("helper", event), Duplicate)


@pytest.mark.rule("CM-19", "CM-77")
@pytest.mark.parametrize(
    ("agent", "event", "refusal"),
    [
        ("helper", {"channel": "other"}, ForeignEvent),
        ("helper", {"kind": "reaction"}, NotSubscribed),
        ("plain", {}, NoMemory),
        ("nobody", {}, UnknownAgent),
    ],
)
async def test_what_does_not_fit_the_channel_and_the_agent_is_refused(
    shared: TestApp, agent: str, event: dict[str, Any], refusal: type[Exception]
) -> None:
    before = await count(shared, "reservations"), await count(shared, "lanes")

    with pytest.raises(refusal):
        await shared.channel(shared.channels["lab"]).dispatch_conversation(agent, an_event(**event))

    assert (await count(shared, "reservations"), await count(shared, "lanes")) == before


@pytest.mark.rule("CM-28", "CM-27")
async def test_a_denied_dispatch_creates_nothing_and_says_so(shared: TestApp) -> None:
    tables = ("reservations", "lanes", "conversations", "runs", "items")
    before = [await count(shared, table) for table in tables]
    event = an_event(principal={"id": "mallory"})

    outcome = await shared.channel(shared.channels["lab"]).dispatch_conversation("helper", event)

    assert outcome == Denied()
    assert [await count(shared, table) for table in tables] == before


async def test_a_policy_that_fails_leaves_the_event_to_be_dispatched_again() -> None:
    moods = iter([RuntimeError("policy database away")])

    async def moody(access: Access) -> Allow:
        if access.purpose == "dispatch":
            for error in moods:
                raise error
        return Allow()

    app = an_app(authorize=moody)
    async with TestApp(app) as chat:
        door, event = chat.channel(app.channels["lab"]), an_event(chat="c")
        with pytest.raises(PolicyUnavailable):
            await door.dispatch_conversation("helper", event)
        assert await count(chat, "runs") == 0

        assert isinstance(await door.dispatch_conversation("helper", event), Admitted)
        await chat.idle()
        assert len(await chat.replies(chat="c")) == 1


@pytest.mark.rule("CM-77", "CM-21")
async def test_the_same_event_by_kafka_and_by_dispatch_is_one(shared: TestApp) -> None:
    door = shared.channel(shared.channels["lab"])
    sent = await shared.send("hello", chat="both", user="ada")
    await shared.settled()
    same = an_event(event_id=sent, account="account", chat="both", text="hello", principal={"id": "ada"})

    again = await door.dispatch_conversation("helper", same)
    with pytest.raises(EventRefused, match="payload_mismatch"):
        await door.dispatch_conversation("helper", same.model_copy(update={"text": "goodbye"}))

    assert isinstance(again, Duplicate)
    runs = [run for run in await shared.runs() if run.event_id == sent]
    assert [run.id for run in runs] == [again.run_id]


@pytest.mark.rule("CM-19", "CM-26")
async def test_a_payload_binds_nothing_and_stays_there_for_tools(shared: TestApp) -> None:
    forged = {
        "account": "boss",
        "chat": "private",
        "audience": "direct",
        "memory_key": "x",
        "conversation": 1,
    }
    event = an_event(chat="mine", account="main", text="hi", payload=forged)

    outcome = await shared.channel(shared.channels["lab"]).dispatch_conversation("helper", event)
    await shared.idle()

    assert isinstance(outcome, Admitted)
    rows = await shared.database.fetch(
        "select c.memory_key, c.channel, c.account, c.chat, c.audience, r.event"
        " from runs r join conversations c using (lane_id) where r.id = $1",
        outcome.run_id,
    )
    assert tuple(rows[0])[:5] == ("memory", "lab", "main", "mine", "direct")
    assert b'"private"' in rows[0]["event"]
    assert await shared.replies(chat="mine") == ["hi <- nothing"]


@pytest.mark.rule("CM-24", "CM-77")
async def test_a_plain_dispatch_is_unbound_and_runs_once_for_its_id() -> None:
    turns: list[Turn] = []

    async def job(turn: Turn) -> None:
        turns.append(turn)
        await turn.emit("lab", "ops", f"job: {turn.event.text}", account="main")

    async def reply(turn: Turn) -> None:
        await turn.reply("to nobody")

    worker = Agent("worker", runs=job, conversation="memory")
    polite = Agent("polite", runs=reply)
    forged = {"conversation": {"chat": "c", "audience": "direct"}, "account": "main", "chat": "c"}
    async with TestApp(an_app(worker, polite)) as chat:
        first = await chat.dispatch("worker", "tidy up", event_id="nightly-1", payload=forged)
        again = await chat.dispatch("worker", "tidy up", event_id="nightly-1", payload=forged)
        with pytest.raises(EventRefused, match="payload_mismatch"):
            await chat.dispatch("worker", "something else", event_id="nightly-1")
        unsaid = await chat.dispatch("polite")
        with pytest.raises(UnknownAgent):
            await chat.dispatch("nobody")
        await chat.idle()

        assert (type(first), again) == (Admitted, Duplicate(first.run_id))
        [turn] = turns
        assert (turn.has_conversation, turn.event.payload) == (False, forged)
        assert [await count(chat, table) for table in ("conversations", "items", "notes")] == [0, 0, 0]
        assert await chat.replies(chat="ops") == ["job: tidy up"]
        failed = {run.id: run.reason for run in await chat.runs() if run.status == "failed"}
        assert failed == {unsaid.run_id: "NoReplyAddress"}


def test_no_channel_of_an_app_bears_a_name_of_the_engine() -> None:
    with pytest.raises(InvalidApp, match="the engine's own"):
        an_app(channel=LabChannel("parley:dispatch"))


async def test_a_changed_copy_of_an_event_is_queued_as_it_was_changed(shared: TestApp) -> None:
    read: Event = an_event(chat="copied", text="as it came")

    await shared.channel(shared.channels["lab"]).dispatch_conversation(
        "helper", read.model_copy(update={"text": "as it was changed"})
    )
    await shared.idle()

    assert await shared.replies(chat="copied") == ["as it was changed <- nothing"]
