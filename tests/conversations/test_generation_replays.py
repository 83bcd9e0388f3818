"""Reset and delete while events wait in Kafka, twice at once, and while a turn is stopped that will not stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conversations.gates import a_gate
from tests.conversations.racing import (
    LEASE,
    NOTHING,
    Act,
    a_conversation,
    claim_one,
    either,
    generation,
    history_of_next,
    kept,
    says,
)
from tests.support.desk import a_desk, allow
from tests.support.events import KEYS, an_agent, candidates_of
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from tests.support.running import Nursery, a_nursery, a_site, a_worker
from workers.admission.policy import Admitted, Duplicate
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.memory.limits import Conversations
from workers.operations.conversations import delete, inspect, reset
from workers.operations.errors import ActRefused
from workers.operations.runs import cancel_runs


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with a_nursery() as nursery:
        yield nursery


@either
@pytest.mark.rule("CM-64", "CM-62", "CM-21")
async def test_an_event_that_waits_in_kafka_belongs_to_the_generation_after_the_reset_or_delete(
    database_url: str, kafka: KafkaCluster, topics: Topics, nursery: Nursery, tmp_path: Path, act: Act
) -> None:
    seen: list[tuple[str, int, int]] = []

    async def answers(turn: Turn) -> None:
        seen.append((turn.event.text, len(turn.history), len(turn.notes)))
        await turn.set_note("said", turn.event.text)
        await turn.reply(f"re: {turn.event.text}")

    agent = an_agent("helper", runs=answers, conversation=True)
    app = App("tested", agents=[agent], channels=[LabChannel(keys=KEYS)], conversations=Conversations(allow))
    async with a_site(database_url, kafka, topics, nursery, tmp_path) as site:
        async with a_worker(site, app):
            await site.publish(says("first"))
            await site.settled(1)
        await site.publish(says("waiting"))

        [lane] = await site.rows("select id from lanes")
        await act(site.database, lane["id"], "ann")
        await site.publish(says("first"), says("last"))
        async with a_worker(site, app):
            await site.settled(3)

        assert seen == [("first", 0, 0), ("waiting", 0, 0), ("last", 2, 1)]
        runs = await site.rows("select event_id, generation, status from runs order by position")
        assert [(run["event_id"], run["generation"]) for run in runs] == [
            ("first", 0),
            ("waiting", 1),
            ("last", 1),
        ]


@pytest.mark.rule("CM-62")
async def test_two_resets_at_once_are_two_generations_and_keep_the_notes_that_both_keep(
    database_url: str,
) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        async with a_gate(desk.database, "audit", "insert") as gate:
            first = await gate.stop(reset(desk.database, lane_id, "ann", keep_notes=True))
            second = await gate.behind(reset(desk.database, lane_id, "bob", keep_notes=True))
            await gate.open()
            generations = [(await first).generation, (await second).generation]

        assert generations == [1, 2]
        assert (await kept(desk))["notes"] == ["first"]
        assert await desk.value("select generation from notes") == 2
        assert await history_of_next(desk) == []


@pytest.mark.rule("CM-62")
@pytest.mark.parametrize("keeps_first", [True, False])
async def test_of_two_resets_at_once_one_that_drops_the_notes_is_enough(
    database_url: str, keeps_first: bool
) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        async with a_gate(desk.database, "audit", "insert") as gate:
            first = await gate.stop(reset(desk.database, lane_id, "ann", keep_notes=keeps_first))
            second = await gate.behind(reset(desk.database, lane_id, "bob", keep_notes=not keeps_first))
            await gate.open()
            await asyncio.gather(first, second)

        assert (await kept(desk))["notes"] == []
        assert await generation(desk, lane_id) == 2


@pytest.mark.rule("CM-63", "CM-64", "CM-21")
async def test_deleted_twice_while_a_turn_is_stopped_nothing_comes_back_by_late_work_or_a_redelivery(
    database_url: str,
) -> None:
    """langchain-ai/langgraph issue 7206: a late writer that held the old configuration made a deleted thread anew."""
    calls: list[str] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(turn: Turn) -> None:
        calls.append(turn.event.event_id)
        await turn.reply("working on it")
        began.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            # It does not let itself be stopped, and writes what it has.
            await go_on.wait()
        await turn.set_note("late", "note")
        await turn.reply("late")

    agent = an_agent("helper", runs=slow, conversation=True)
    async with a_desk(database_url, agent, lease_for=LEASE) as desk, a_desk(database_url, agent) as other:
        [run_id] = await desk.admit("helper", says("first"))
        lane_id = (await desk.lane_of(run_id))["id"]
        await desk.loop.run_once()
        await began.wait()
        with pytest.raises(ActRefused, match=str(run_id)):
            await delete(other.database, lane_id, "ann")
        await desk.lapse()
        await other.recovery.run_once()
        await cancel_runs(other.database, [run_id], "ann")

        async with a_gate(other.database, "audit", "insert") as gate:
            first = await gate.stop(delete(other.database, lane_id, "ann"))
            second = await gate.behind(delete(other.database, lane_id, "bob"))
            await gate.open()
            deleted = [await first, await second]
        go_on.set()
        await desk.loop.idle()
        again = await other.admission.admit(candidates_of(agent, [says("first")]))
        await other.work()

        assert [each.generation for each in deleted] == [1, 2]
        assert again == [Duplicate(run_id)]
        assert calls == ["first"]
        assert await kept(other) == NOTHING
        found = await inspect(other.database, lane_id)
        assert found is not None
        assert (found.item_count, found.note_count, found.open_runs, found.open_deliveries) == (0, 0, 0, 0)
        [outcome] = await other.admission.admit(candidates_of(agent, [says("second")]))
        assert isinstance(outcome, Admitted)
        turn = await claim_one(other)
        assert turn.snapshot is not None
        assert (turn.snapshot.history, turn.snapshot.notes, turn.snapshot.omitted_items) == ((), (), 0)
