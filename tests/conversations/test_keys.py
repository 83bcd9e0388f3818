"""A memory key outlives the agent's name, and grants nothing; runs keep the name and the key they were queued with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from workers.agents.agent import Agent, Subscription
from workers.agents.errors import AgentFailed
from workers.agents.turn import Turn
from workers.app import Access, Allow, App, Conversations, Deny
from workers.channels.lab import LabChannel
from workers.operations.runs import cancel_runs_of
from workers.testing import TestApp


def reciting(name: str, conversation: bool | str, heard: list[str] | None = None, **options: Any) -> Agent:
    async def runs(turn: Turn) -> None:
        if heard is not None:
            heard.append(turn.event.text)
        seen = [exchange.text for exchange in turn.history]
        await turn.set_note("last", turn.event.text)
        await turn.reply(f"{[note.body for note in turn.notes]} {seen}")

    return an_agent(name, runs=runs, conversation=conversation, **options)


async def deliver(desk: Desk) -> None:
    """What was journalled has arrived."""
    await desk.database.execute(
        "update deliveries set state = 'sent', finished_at = now() where finished_at is null"
    )
    await desk.database.execute("update items set status = 'sent' where kind = 'reply'")


async def ask(desk: Desk, agent: str, text: str, **event: Any) -> str:
    """One message in the room, and what it was answered with."""
    [run_id] = await desk.admit(agent, an_event(**{"chat": "room", "text": text} | event))
    await desk.work()
    assert await desk.status(run_id) == "succeeded", await desk.run(run_id)
    await deliver(desk)
    [reply] = await desk.replies(run_id)
    return reply


@pytest.mark.rule("CM-10", "CM-12")
async def test_history_and_notes_follow_the_key_and_not_the_name(database_url: str) -> None:
    async with a_desk(database_url, reciting("helper", True)) as desk:
        assert await ask(desk, "helper", "one") == "[] []"
    async with a_desk(database_url, reciting("helper", "helper")) as desk:
        assert await ask(desk, "helper", "two") == "['one'] ['one', '[] []']"
    async with a_desk(database_url, reciting("support", "helper")) as desk:
        assert (await ask(desk, "support", "three")).startswith("['two'] ['one', '[] []', 'two', ")
    async with a_desk(database_url, reciting("support", "support")) as desk:
        assert await ask(desk, "support", "four") == "[] []"
        bodies = await desk.rows(
            "select c.memory_key, count(*) as n from items join conversations c"
            " using (lane_id) group by 1 order by 1"
        )
    assert bodies == [{"memory_key": "helper", "n": 6}, {"memory_key": "support", "n": 2}]


@pytest.mark.rule("CM-11")
@pytest.mark.parametrize(
    "elsewhere",
    [{"channel": "other"}, {"account": "b"}, {"chat": "hall"}, {"audience": "team"}, {"thread": "t"}],
    ids=lambda changed: next(iter(changed)),
)
async def test_the_same_key_in_another_place_finds_nothing(
    database_url: str, elsewhere: dict[str, str]
) -> None:
    async with a_desk(database_url, reciting("helper", "k")) as desk:
        await ask(desk, "helper", "one")

        assert await ask(desk, "helper", "two", **elsewhere) == "[] []"
        assert await ask(desk, "helper", "three") == "['one'] ['one', '[] []']"


@pytest.mark.rule("CM-13", "CM-10")
async def test_queued_and_interrupted_runs_keep_their_name_and_wait_until_they_are_cancelled(
    database_url: str,
) -> None:
    async def fails(turn: Turn) -> None:
        await turn.step("begin", lambda: 1)
        raise AgentFailed("later", retryable=True, retry_after=timedelta(hours=1))

    async with a_desk(database_url, an_agent("helper", runs=fails, conversation="k")) as desk:
        interrupted, queued = await desk.admit("helper", *(an_event(chat="room") for _ in range(2)))
        await desk.work()
        await desk.database.execute("update runs set due_at = now()")
        await desk.database.execute("update ready set due_at = now()")

    heard: list[str] = []
    async with a_desk(database_url, reciting("support", "k", heard)) as renamed:
        [new] = await renamed.admit("support", an_event(chat="room", text="new"))
        await renamed.work()

        assert heard == []
        for run_id in (interrupted, queued):
            run = await renamed.run(run_id)
            assert (run["agent"], run["memory_key"], run["finished_at"]) == ("helper", "k", None)
        assert await renamed.status(new) == "queued"

        await cancel_runs_of(renamed.database, "helper", "operator")
        await renamed.work()
        assert [await renamed.status(run) for run in (interrupted, queued, new)] == [
            "cancelled",
            "cancelled",
            "succeeded",
        ]
        assert heard == ["new"]


def unbound(name: str, heard: list[str]) -> Agent:
    async def runs(turn: Turn) -> None:
        heard.append(turn.event.text)

    return an_agent(name, runs=runs)


@pytest.mark.rule("CM-14")
@pytest.mark.parametrize("now", ["another", True, False], ids=["another key", "its name", "no memory"])
async def test_runs_bound_to_a_changed_key_fail_with_that_reason_and_touch_no_history(
    database_url: str, now: bool | str
) -> None:
    async def fails(turn: Turn) -> None:
        raise AgentFailed("later", retryable=True, retry_after=timedelta(hours=1))

    heard: list[str] = []
    changed = unbound("helper", heard) if now is False else reciting("helper", now, heard)
    async with a_desk(database_url, an_agent("helper", runs=fails, conversation="k")) as desk:
        interrupted, queued = await desk.admit(
            "helper", *(an_event(chat="room", text=text) for text in ("interrupted", "queued"))
        )
        await desk.work()
        await desk.database.execute("update runs set due_at = now()")
        await desk.database.execute("update ready set due_at = now()")

    async with a_desk(database_url, changed) as desk:
        [new] = await desk.admit("helper", an_event(chat="room", text="new"))
        await desk.work()

        for run_id in (interrupted, queued):
            run = await desk.run(run_id)
            assert (run["status"], run["reason"], run["memory_key"]) == ("failed", "memory key changed", "k")
        assert (await desk.status(new), heard) == ("succeeded", ["new"])
        assert await desk.value("select count(*) from turns") == 0
        others = await desk.rows(
            "select i.body from items i join conversations c using (lane_id) where c.memory_key <> 'k'"
        )
        assert {item["body"] for item in others} <= {"new", "[] []"}
        assert await desk.value("select count(*) from deliveries where run_id <> $1", new) == 0


@pytest.mark.rule("CM-6", "CM-13")
async def test_a_run_that_was_queued_unbound_stays_unbound_when_its_agent_opts_in(database_url: str) -> None:
    async with a_desk(database_url, unbound("helper", [])) as desk:
        [run_id] = await desk.admit("helper", an_event(chat="room"))
    bound: list[bool] = []

    async def runs(turn: Turn) -> None:
        bound.append(turn.has_conversation)

    async with a_desk(database_url, an_agent("helper", runs=runs, conversation=True)) as desk:
        await desk.work()

        assert (await desk.status(run_id), bound) == ("succeeded", [False])
        assert await desk.value("select count(*) from conversations") == 0


@pytest.mark.rule("CM-15", "CM-16")
async def test_a_shared_key_shares_memory_as_far_as_the_policy_lets_each_agent() -> None:
    asked: list[tuple[str, str, str]] = []

    async def authorize(access: Access) -> Allow | Deny:
        asked.append((access.purpose, access.agent, access.identity.agent))
        return Deny("not this one") if access.agent == "intruder" else Allow()

    async def keep(turn: Turn) -> None:
        await turn.set_note("tea", "likes tea")
        await turn.reply("kept")

    async def tell(turn: Turn) -> None:
        await turn.reply(f"{[note.body for note in turn.notes]} {[each.text for each in turn.history]}")

    def agent(name: str, runs: Callable[[Turn], Any], trigger: str) -> Agent:
        return Agent(name, runs=runs, conversation="shared", subscriptions=[Subscription("lab", trigger)])

    app = App(
        "shared",
        agents=[agent("clerk", keep, "keep"), agent("reader", tell, "tell"), agent("intruder", tell, "tell")],
        channels=[LabChannel(size_limit=400)],
        conversations=Conversations(authorize=authorize),
    )
    async with TestApp(app) as chat:
        await chat.send("I like tea", kind="keep")
        await chat.settled()
        await chat.send("what do I like?", kind="tell")
        await chat.settled()

        assert (await chat.replies())[1:] == ["['likes tea'] ['I like tea', 'kept']"]
        assert {run.agent for run in await chat.runs()} == {"clerk", "reader"}
        assert {key for _, _, key in asked} == {"shared"}
        assert {(purpose, name) for purpose, name, _ in asked} == {
            ("dispatch", "clerk"),
            ("recall", "clerk"),
            ("notes", "clerk"),
            ("dispatch", "reader"),
            ("recall", "reader"),
            ("dispatch", "intruder"),
        }
