"""The policy is asked at admission, at each recall and resume, and at each use of notes; every denial shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from schemas.identity import Principal
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from workers.agents.agent import Agent
from workers.agents.errors import AgentFailed
from workers.agents.turn import Turn
from workers.app import Access, Allow, Deny
from workers.operations import conversations


@dataclass
class Guard:
    """A policy that notes what it is asked, looks around when it is, and denies what it is told to."""

    asked: list[Access] = field(default_factory=list)
    denies: Callable[[Access], bool] = lambda access: False
    looks: Callable[[Access], Awaitable[None]] | None = None

    async def __call__(self, access: Access) -> Allow | Deny:
        self.asked.append(access)
        if self.looks is not None:
            await self.looks(access)
        return Deny("changed their mind") if self.denies(access) else Allow(f"user of {access.purpose}")

    def purposes(self) -> list[str]:
        return [access.purpose for access in self.asked]


@asynccontextmanager
async def guarded(url: str, guard: Guard, *agents: Agent) -> AsyncIterator[Desk]:
    async with a_desk(url, *agents, authorize=guard, recall_wait=timedelta(0)) as desk:
        yield desk


async def sent(desk: Desk) -> None:
    """Every reply has arrived."""
    await desk.database.execute(
        "update deliveries set state = 'sent', finished_at = now() where finished_at is null"
    )
    await desk.database.execute(
        "update items set status = 'sent' where kind = 'reply' and status = 'pending'"
    )


def reciting(started: list[str], **options: Any) -> Agent:
    async def runs(turn: Turn) -> None:
        started.append(turn.event.text)
        await turn.reply(f"{turn.user} {[exchange.text for exchange in turn.history]}")

    return an_agent("helper", runs=runs, conversation="k", **options)


@pytest.mark.rule("CM-27", "CM-38")
async def test_recall_is_asked_after_the_claim_committed_and_before_the_agent_begins(
    database_url: str,
) -> None:
    started: list[str] = []
    seen: list[tuple[Any, ...]] = []
    guard = Guard()
    async with guarded(database_url, guard, reciting(started)) as desk:

        async def look(access: Access) -> None:
            row = await desk.database.fetchrow(
                "select r.status, t.snapshot is not null, i.status, (select count(*) from run_steps)"
                " from turns t join runs r on r.id = t.run_id join items i on i.run_id = r.id"
            )
            seen.append((*(row or ()), len(started)))

        guard.looks = look
        event = an_event(chat="room", principal=Principal("ada", "acme", {"role": "guest"}))
        await desk.admit("helper", event)
        await desk.work()

        [access] = guard.asked
        assert seen == [("running", True, "accepted", 0, 0)]
        assert (access.purpose, access.agent, access.principal) == ("recall", "helper", event.principal)
        assert access.event == event
        assert await desk.replies() == ["user of recall []"]


@pytest.mark.rule("CM-27", "CM-28")
async def test_a_denial_at_recall_settles_the_run_and_its_input_is_never_recalled(database_url: str) -> None:
    started: list[str] = []
    guard = Guard(denies=lambda access: access.event.text == "denied")
    async with guarded(database_url, guard, reciting(started)) as desk:
        runs = []
        for text in ("before", "denied", "after"):
            runs += await desk.admit("helper", an_event(chat="room", text=text))
            await desk.work()
            await sent(desk)

        denied = await desk.run(runs[1])
        assert (denied["status"], denied["reason"]) == ("failed", "recall_denied")
        assert started == ["before", "after"]
        assert (await desk.replies(runs[2])) == ["user of recall ['before', 'user of recall []']"]
        assert await desk.value("select status from items where body = 'denied'") == "withheld"
        assert await desk.value("select count(*) from turns") == 0
        lane = (await desk.lane_of(runs[1]))["id"]
        inspected = await conversations.inspect(desk.database, lane)
        assert inspected is not None
        assert ("input", "withheld") in [(item.kind, item.status) for item in inspected.items]
        assert b'policy_decisions_total{outcome="recall_denied"} 1.0' in desk.metrics.render()


@pytest.mark.rule("CM-27", "CM-28")
async def test_a_denial_at_a_resume_stops_the_run_and_takes_back_nothing_that_was_sent(
    database_url: str,
) -> None:
    tries: list[int] = []

    async def runs(turn: Turn) -> None:
        tries.append(1)
        await turn.reply("first part")
        raise AgentFailed("the rest later", retryable=True)

    guard = Guard(denies=lambda access: len(tries) == 1 and access.event.text == "long")
    agents = an_agent("long", runs=runs, conversation="k"), reciting([])
    async with guarded(database_url, guard, *agents) as desk:
        [run_id] = await desk.admit("long", an_event(chat="room", text="long"))
        await desk.turn_once()
        await sent(desk)
        await desk.database.execute("update runs set due_at = now()")
        await desk.database.execute("update ready set due_at = now()")
        await desk.work()

        run = await desk.run(run_id)
        assert (run["status"], run["reason"], tries) == ("failed", "recall_denied", [1])
        assert guard.purposes() == ["recall", "recall"]
        [later] = await desk.admit("helper", an_event(chat="room", text="later"))
        await desk.work()
        assert await desk.replies(later) == ["user of recall ['first part']"]


@pytest.mark.rule("CM-27")
async def test_a_denial_of_notes_is_told_to_the_agent_and_counted_and_recalls_go_on(
    database_url: str,
) -> None:
    told: list[str] = []

    async def runs(turn: Turn) -> None:
        for use in (
            lambda: turn.set_note("key", "text"),
            lambda: turn.get_note("key"),
            turn.list_notes,
            lambda: turn.remove_note("key"),
        ):
            try:
                await use()
            except Exception as error:
                told.append(type(error).__name__)
        await turn.reply("went on")

    guard = Guard(denies=lambda access: access.purpose == "notes")
    async with guarded(database_url, guard, an_agent("helper", runs=runs, conversation="k")) as desk:
        [run_id] = await desk.admit("helper", an_event(chat="room"))
        await desk.work()

        assert told == ["NotesDenied"] * 4
        assert guard.purposes() == ["recall", *["notes"] * 4]
        assert await desk.status(run_id) == "succeeded"
        assert await desk.value("select count(*) from notes") == 0
        assert b'policy_decisions_total{outcome="notes_denied"} 4.0' in desk.metrics.render()


@pytest.mark.rule("CM-28")
async def test_a_member_who_left_the_group_is_stopped_at_the_next_recall(database_url: str) -> None:
    members = {"ada", "bob"}
    started: list[str] = []
    guard = Guard(denies=lambda access: access.principal.id not in members)

    def said(user: str, text: str) -> Any:
        return an_event(chat="room", audience="team", principal=Principal(user), text=text)

    async with guarded(database_url, guard, reciting(started)) as desk:
        first, second = await desk.admit("helper", said("ada", "hello"), said("bob", "admitted as a member"))
        members.remove("bob")
        await desk.work()

        assert (await desk.status(first), await desk.status(second)) == ("succeeded", "failed")
        assert started == ["hello"]
