"""Lock first, read second, freeze, own: no run twice, and no snapshot that misses what came before."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest

from tests.support.desk import a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.agents.errors import AgentFailed
from workers.agents.turn import Turn
from workers.memory import snapshot
from workers.turns import store

CONVERSATIONS, EVENTS = 50, 8


@pytest.mark.rule("EN-16")
async def test_six_claimers_run_nothing_twice_and_miss_no_prior_item(database_url: str) -> None:
    ran: list[str] = []
    missed: list[str] = []

    async def instant(turn: Turn) -> None:
        ran.append(turn.event.event_id)
        expected = [f"{n}" for n in range(int(turn.event.text))]
        if [exchange.text for exchange in turn.history] != expected:
            missed.append(turn.event.event_id)

    agent = an_agent(runs=instant, conversation=True)
    async with AsyncExitStack() as stack:
        desks = [await stack.enter_async_context(a_desk(database_url, agent, pool_size=3)) for _ in range(6)]

        async def admit(first: int) -> None:
            for n in range(EVENTS):
                events = [an_event(chat=f"c{chat}", text=f"{n}") for chat in range(first, CONVERSATIONS, 5)]
                await desks[first].admit("echo", *events)

        for desk in desks:
            await stack.enter_async_context(desk.running())
        await asyncio.gather(*(admit(first) for first in range(5)))
        await eventually("all ran", lambda: len(ran) >= CONVERSATIONS * EVENTS)
        await eventually(
            "all settled", lambda: desks[0].value("select bool_and(finished_at is not null) from runs")
        )

        assert len(ran) == len(set(ran)) == CONVERSATIONS * EVENTS
        assert missed == []
        assert await desks[0].statuses() == {"succeeded": CONVERSATIONS * EVENTS}
        assert await desks[0].value("select count(*) from items") == CONVERSATIONS * EVENTS
        assert await desks[0].value("select max(epoch) from runs") == EVENTS
        assert (
            await desks[0].value("select deadlocks from pg_stat_database where datname = current_database()")
            == 0
        )


@pytest.mark.rule("EN-16")
async def test_a_run_that_ended_between_looking_and_locking_does_not_run_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.text)

    agent = an_agent(runs=runs, conversation=True)
    async with a_desk(database_url, agent) as one, a_desk(database_url, agent) as two:
        await one.admit("echo", an_event(chat="c", text="first"), an_event(chat="c", text="second"))
        lock = store.lock_ready_lanes

        async def after_another(*arguments: Any) -> list[int]:
            monkeypatch.setattr(store, "lock_ready_lanes", lock)
            await two.turn_once()
            return await lock(*arguments)

        monkeypatch.setattr(store, "lock_ready_lanes", after_another)
        await one.turn_once()

    assert ran == ["first", "second"]


@pytest.mark.rule("EN-16", "EN-43")
async def test_a_held_conversation_is_skipped_and_asked_for_again_at_once(database_url: str) -> None:
    ran: list[str] = []

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.text)

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        [held] = await desk.admit("echo", an_event(text="held"))
        await desk.admit("echo", an_event(text="free"))
        async with desk.database.transaction() as tx:
            await tx.execute(
                "select from lanes where id = (select lane_id from runs where id = $1) for update", held
            )

            assert await desk.turn_once() is True

            assert ran == ["free"]
        await desk.turn_once()
        assert ran == ["free", "held"]


@pytest.mark.rule("EN-16")
async def test_input_epoch_and_snapshot_are_committed_before_the_agent_runs(database_url: str) -> None:
    found: list[dict[str, Any]] = []

    async def runs(turn: Turn) -> None:
        async with a_desk(database_url) as other:
            found.extend(
                await other.rows(
                    "select t.*, l.epoch as lane_epoch, l.owner_run, r.status, r.epoch as run_epoch, i.body"
                    " from turns t join lanes l on l.id = t.lane_id join runs r on r.id = t.run_id"
                    " join items i on i.run_id = r.id"
                )
            )

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event(chat="c", text="before"))
        [run_id] = await desk.admit("echo", an_event(chat="c", text="now"))
        await desk.work()

        row = found[-1]
        assert (row["run_id"], row["owner_run"], row["session_id"]) == (run_id, run_id, desk.session.id)
        assert row["epoch"] == row["lane_epoch"] == row["run_epoch"] == 2
        assert (row["status"], row["body"]) == ("running", "now")
        assert sha256(row["snapshot"]).digest() == row["snapshot_digest"]
        assert [
            exchange.text for exchange in snapshot.decode(row["snapshot"], row["snapshot_digest"]).history
        ] == ["before"]


@pytest.mark.rule("EN-16", "EN-23")
async def test_an_input_is_recorded_once_and_the_snapshot_frozen_over_retries(database_url: str) -> None:
    histories: list[list[str]] = []

    async def runs(turn: Turn) -> None:
        histories.append([exchange.text for exchange in turn.history])
        if turn.event.text == "two" and len(histories) < 5:
            raise AgentFailed("busy", retryable=True)

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        first, second = await desk.admit(
            "echo", an_event(chat="c", text="one"), an_event(chat="c", text="two")
        )
        await desk.work()
        lane = (await desk.lane_of(second))["id"]
        for n in range(3):
            await desk.database.execute(
                "insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes)"
                " values ($1, 0, 'input', 'accepted', $2, $3, 'later', 5)",
                lane,
                first,
                f"slipped in {n}",
            )
            await desk.database.execute("update ready set due_at = parley_now()")
            await desk.database.execute("update runs set due_at = parley_now()")
            await desk.work()

        assert histories == [[], *[["one"]] * 4]
        rows = await desk.rows(
            "select event_id, count(*) as n from items where run_id = $1 group by 1", second
        )
        assert [row["n"] for row in rows] == [1]
        run = await desk.run(second)
        assert (run["status"], run["retries"], run["crashes"]) == ("succeeded", 3, 0)


@pytest.mark.rule("EN-23")
async def test_retries_are_bounded_and_counted_apart(database_url: str) -> None:
    async def runs(turn: Turn) -> None:
        raise AgentFailed("busy", retryable=True)

    async with a_desk(database_url, an_agent(runs=runs, retries=2, on_failure="sorry")) as desk:
        [run_id] = await desk.admit("echo", an_event())
        for _ in range(4):
            await desk.database.execute("update runs set due_at = parley_now() where finished_at is null")
            await desk.database.execute("update ready set due_at = parley_now()")
            await desk.work()

        run = await desk.run(run_id)
        assert (run["status"], run["reason"]) == ("failed", "retries exhausted: busy")
        assert (run["retries"], run["crashes"], run["attempts"]) == (2, 0, 0)
        assert await desk.replies() == ["sorry"]


@pytest.mark.rule("EN-28")
async def test_unbound_runs_are_owned_and_leased_and_all_run_at_once(database_url: str) -> None:
    gate = asyncio.Event()

    async def runs(turn: Turn) -> None:
        await gate.wait()
        await turn.reply(turn.event.text)

    async with a_desk(database_url, an_agent(runs=runs)) as desk:
        ids = await desk.admit("echo", *(an_event(chat="c", text=f"{n}") for n in range(10)))
        await desk.loop.run_once()

        turns = await desk.rows(
            "select t.*, l.owner_run, l.epoch as e from turns t join lanes l on l.id = t.lane_id"
        )
        assert {turn["run_id"] for turn in turns} == set(ids)
        assert all(turn["owner_run"] == turn["run_id"] and turn["epoch"] == turn["e"] == 1 for turn in turns)
        assert {turn["session_id"] for turn in turns} == {desk.session.id}
        assert {turn["snapshot"] for turn in turns} == {None}

        await desk.database.execute("update lanes set epoch = 2 where id = $1", turns[0]["lane_id"])
        gate.set()
        await desk.loop.idle()
        assert len(await desk.replies()) == 9
        assert await desk.statuses() == {"succeeded": 9, "running": 1}
        assert await desk.value("select count(*) from items") == 0


@pytest.mark.rule("EN-28")
async def test_a_concurrency_key_serializes_its_own_runs_and_no_others(database_url: str) -> None:
    started: list[str] = []
    gate = asyncio.Event()

    async def runs(turn: Turn) -> None:
        started.append(turn.event.text)
        await gate.wait()

    agent = an_agent(runs=runs, concurrency_key=lambda event: event.chat)
    async with a_desk(database_url, agent) as desk:
        await desk.admit(
            "echo",
            an_event(chat="c", text="c1"),
            an_event(chat="c", text="c2"),
            an_event(chat="d", text="d1"),
        )
        await desk.loop.run_once()
        await desk.loop.run_once()
        await eventually("two started", lambda: len(started) == 2)

        assert sorted(started) == ["c1", "d1"]
        gate.set()
        await desk.loop.idle()
        await desk.work()
        assert started[-1] == "c2"


@pytest.mark.rule("EN-21", "EN-28")
async def test_an_unbound_run_of_a_dead_worker_is_taken_over(database_url: str) -> None:
    ran: list[str] = []

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.text)
        if len(ran) == 1:
            await asyncio.Event().wait()

    lease = timedelta(seconds=2)
    agent = an_agent(runs=runs)
    async with (
        a_desk(database_url, agent, lease_for=lease) as one,
        a_desk(database_url, agent, lease_for=lease) as two,
    ):
        [run_id] = await one.admit("echo", an_event(text="x"))
        await one.loop.run_once()
        await eventually("it runs", lambda: ran)
        await one.lapse()
        await two.recovery.run_once()
        await two.work()

        assert ran == ["x", "x"]
        assert await two.status(run_id) == "succeeded"
