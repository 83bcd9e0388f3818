"""A hand-off is queued once, with the step that asks for it, and binds its run to no conversation."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.identity import Principal
from tests.conversations.apps import handing_off
from tests.support.crashing import Order, Spawn
from tests.support.desk import a_desk
from tests.support.events import an_agent, an_event
from tests.support.turn_worker import NOBODY_LISTENS
from tests.support.waiting import eventually
from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership, TooManyHandOffs, UnknownAgent
from workers.agents.turn import Turn

FORGED = {"conversation": {"chat": "c", "generation": 0}, "memory_key": "helper", "account": "a", "chat": "c"}
RUNS_OF = "select * from runs where agent = $1 order by admitted_at, id"


def handing_off_to(name: str, seen: list[UUID], **handed: Any) -> Agent:
    async def runs(turn: Turn) -> None:
        seen.append(await turn.handoff(name, **handed))
        await turn.reply("handed off")

    return an_agent("front", runs=runs, conversation="helper")


def a_second(seen: list[Turn], **changes: Any) -> Agent:
    async def runs(turn: Turn) -> None:
        seen.append(turn)
        await turn.reply(f"back office: {turn.event.text}")

    return an_agent("back", runs=runs, **{"conversation": "helper", "subscriptions": [], **changes})


@pytest.mark.rule("CM-24", "CM-77")
async def test_a_handed_off_run_is_unbound_whatever_its_agent_and_payload_say(database_url: str) -> None:
    turns: list[Turn] = []
    event = an_event(chat="c", thread="t", principal=Principal("ada"), text="Where is my parcel?")
    async with a_desk(database_url, handing_off_to("back", [], payload=FORGED), a_second(turns)) as desk:
        await desk.admit("front", event)
        await desk.work()

        [turn] = turns
        [run] = await desk.rows(RUNS_OF, "back")
        assert (run["status"], run["memory_key"]) == ("succeeded", None)
        assert not turn.has_conversation
        assert (turn.history, turn.notes, turn.user) == ((), (), None)
        assert (turn.event.kind, turn.event.text, turn.event.payload) == ("handoff", event.text, FORGED)
        assert (turn.principal.id, turn.event.address) == ("ada", event.address)
        assert await desk.replies(run["id"]) == ["back office: Where is my parcel?"]
        assert await desk.value("select kind from lanes where id = $1", run["lane_id"]) == "run"
        items = await desk.rows("select kind, body from items order by id")
        assert items == [
            {"kind": "input", "body": event.text},
            {"kind": "reply", "body": "handed off"},
        ]


@pytest.mark.rule("CM-77")
@pytest.mark.parametrize("point", ["journal.before_commit", "journal.committed"])
async def test_a_process_killed_around_the_commit_of_a_hand_off_hands_off_once(
    database_url: str, point: str, spawn_worker: Spawn
) -> None:
    agents = handing_off().agents.values()
    order = Order(
        database_url,
        NOBODY_LISTENS,
        ("events", "deliveries", "dead"),
        "group",
        ("turns",),
        "tests.conversations.apps:handing_off",
        point,
    )
    async with a_desk(database_url, *agents, lease_for=timedelta(seconds=1)) as desk:
        [run_id] = await desk.admit("front", an_event())
        await asyncio.to_thread(spawn_worker(order).wait_until_killed)
        queued = await desk.value("select count(*) from runs where agent = 'back'")
        await desk.database.execute(
            "update worker_sessions set lease_until = parley_now() - interval '1 minute' where id <> $1",
            desk.session.id,
        )

        await desk.recovery.run_once()
        await desk.work()

        assert queued == (1 if point == "journal.committed" else 0)
        assert await desk.status(run_id) == "succeeded"
        [handed] = await desk.rows(RUNS_OF, "back")
        assert handed["status"] == "succeeded"
        assert await desk.value("select count(*) from reservations where agent = 'back'") == 1
        assert sorted(await desk.replies()) == ["back office: hello", "handed off"]


@pytest.mark.rule("CM-77")
async def test_an_attempt_that_is_tried_again_gives_the_same_run(database_url: str) -> None:
    ids: list[UUID] = []

    async def runs(turn: Turn) -> None:
        ids.append(await turn.handoff("back", "first"))
        ids.append(await turn.handoff("back", "second"))
        if len(ids) == 2:
            raise ConnectionError

    front = an_agent("front", runs=runs)
    async with a_desk(database_url, front, a_second([])) as desk:
        await desk.admit("front", an_event())
        await desk.work()
        await desk.database.execute("update ready set due_at = parley_now()")
        await desk.database.execute("update runs set due_at = parley_now()")
        await desk.work()

        assert ids[:2] == ids[2:]
        assert [run["id"] for run in await desk.rows(RUNS_OF, "back")] == ids[:2]


@pytest.mark.rule("CM-77")
async def test_an_owner_that_was_taken_over_hands_nothing_off(database_url: str) -> None:
    waiting, go_on, outcome = asyncio.Event(), asyncio.Event(), []

    async def runs(turn: Turn) -> None:
        waiting.set()
        await go_on.wait()
        try:
            await turn.handoff("back")
        except LostOwnership:
            outcome.append("lost")
            raise

    agents = an_agent("front", runs=runs, conversation="k"), a_second([])
    async with a_desk(database_url, *agents) as late:
        [run_id] = await late.admit("front", an_event())
        await late.loop.run_once()
        await waiting.wait()
        await late.database.execute("update lanes set epoch = epoch + 1 where owner_run = $1", run_id)
        go_on.set()
        await late.loop.idle()

        assert outcome == ["lost"]
        assert await late.value("select count(*) from runs where agent = 'back'") == 0
        assert await late.value("select count(*) from reservations where agent = 'back'") == 0
        assert await late.value("select count(*) from lanes where kind = 'run'") == 0


async def test_a_hand_off_into_a_shared_lane_holds_nothing_while_it_waits_for_it(database_url: str) -> None:
    ready, go_on = asyncio.Event(), asyncio.Event()

    async def runs(turn: Turn) -> None:
        ready.set()
        await go_on.wait()
        await turn.handoff("back")

    back = a_second([], conversation=False, concurrency_key=lambda event: event.account)
    async with a_desk(database_url, an_agent("front", runs=runs, conversation="k"), back) as desk:
        await desk.admit("back", an_event())
        await desk.work()
        [run_id] = await desk.admit("front", an_event())
        await desk.loop.run_once()
        await ready.wait()
        lock = "select id from lanes where id = $1 for no key update"

        async def waits() -> bool:
            waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            return bool(await desk.value(waiting))

        async with desk.database.transaction() as other:
            await other.execute(lock, await desk.value("select id from lanes where kind = 'key'"))
            go_on.set()
            await eventually("the hand-off waits for the shared lane", waits)
            await other.execute("set local lock_timeout = '500ms'")
            await other.execute(lock, (await desk.lane_of(run_id))["id"])
        await desk.work()

        assert await desk.statuses() == {"succeeded": 3}
        assert await desk.value("select count(distinct lane_id) from runs where agent = 'back'") == 1


async def test_hand_offs_to_nobody_and_endless_chains_fail_their_run(database_url: str) -> None:
    async def endless(turn: Turn) -> None:
        await turn.handoff("endless")

    async def to_nobody(turn: Turn) -> None:
        with pytest.raises(UnknownAgent, match="no agent 'nobody' is registered"):
            await turn.handoff("nobody")

    agents = an_agent("endless", runs=endless), an_agent("lost", runs=to_nobody)
    async with a_desk(database_url, *agents) as desk:
        await desk.admit("endless", an_event())
        await desk.admit("lost", an_event())
        await desk.work()

        assert await desk.statuses() == {"succeeded": 17, "failed": 1}
        assert await desk.value("select reason from runs where status = 'failed'") == TooManyHandOffs.__name__
