"""Resetting and deleting a conversation: the next generation begins, and nothing of the old one comes back."""

from dataclasses import replace

import pytest

from schemas.identity import Identity
from tests.operations.desk import OperatorDesk, an_agent
from workers.operations.conversations import delete, find_conversation, inspect, reset
from workers.operations.errors import ActRefused, NotFound
from workers.operations.runs import cancel_runs

IDENTITY = Identity("helper", "slack", "T1", "C1/17.5", "channel")


async def a_conversation_with_notes(desk: OperatorDesk) -> int:
    """One that has an accepted input, an unsent reply, a note and its receipt, and no active turn."""
    run_id = await desk.a_queued_run()
    turn = (await desk.claim())[run_id]
    await desk.a_pending_reply(turn)
    await desk.let_back_off(turn)
    await desk.db.execute(
        "insert into notes (lane_id, generation, key, body, body_bytes) values ($1, 0, 'name', 'Ada', 3)",
        turn.own.lane_id,
    )
    await desk.db.execute(
        "insert into note_operations (lane_id, run_id, step, call, act, key, receipt)"
        " values ($1, $2, 1, 0, 'set', 'name', '{}')",
        turn.own.lane_id,
        run_id,
    )
    await cancel_runs(desk.db, [run_id], "ann")
    return turn.own.lane_id


async def test_an_active_turn_forbids_reset_and_delete_and_is_named(desk: OperatorDesk) -> None:
    run_id = await desk.a_queued_run()
    lane_id = (await desk.claim())[run_id].own.lane_id

    for act in (reset, delete):
        with pytest.raises(ActRefused, match=f"run {run_id} has an active turn"):
            await act(desk.db, lane_id, "ann")

    assert await desk.value("select generation from lanes where id = $1", lane_id) == 0
    assert await desk.acts() == []


async def test_a_delete_removes_what_was_kept_and_leaves_a_tombstone(desk: OperatorDesk) -> None:
    lane_id = await a_conversation_with_notes(desk)

    deleted = await delete(desk.db, lane_id, "ann")

    found = await inspect(desk.db, lane_id)
    assert deleted.generation == 1
    assert found is not None
    assert (found.item_count, found.note_count, found.conversation.generation) == (0, 0, 1)
    assert found.conversation.deleted_at is not None
    assert await desk.value("select count(*) from note_operations") == 0
    assert (await desk.acts())[-1] == ("ann", "conversation.delete", str(lane_id))


async def test_queued_runs_of_the_old_generation_end_and_new_events_belong_to_the_next(
    desk: OperatorDesk,
) -> None:
    old = await desk.a_queued_run()
    lane_id = await find_conversation(desk.db, IDENTITY)
    assert lane_id is not None

    done = await reset(desk.db, lane_id, "ann")
    new = await desk.a_queued_run()

    assert done.cancelled_runs == 1
    assert await desk.status(old) == ("cancelled", "conversation was reset")
    assert await desk.value("select generation from runs where id = $1", new) == 1
    assert list(await desk.claim()) == [new]


async def test_what_an_ended_run_still_had_to_send_is_abandoned_and_says_why(desk: OperatorDesk) -> None:
    run_id = await desk.a_queued_run()
    turn = (await desk.claim())[run_id]
    delivery = await desk.a_pending_reply(turn)
    await desk.let_end(turn)

    done = await reset(desk.db, turn.own.lane_id, "ann")

    assert (done.cancelled_runs, done.abandoned_deliveries) == (0, 1)
    reason = await desk.value("select reason from deliveries where id = $1", delivery)
    assert reason == "abandoned: conversation was reset"
    assert await desk.status(run_id) == ("succeeded", None)


async def test_a_reset_keeps_notes_when_asked_and_the_old_transcript_stays_unrecalled(
    desk: OperatorDesk,
) -> None:
    lane_id = await a_conversation_with_notes(desk)

    await reset(desk.db, lane_id, "ann", keep_notes=True)

    found = await inspect(desk.db, lane_id)
    assert found is not None
    assert [note.key for note in found.notes] == ["name"]
    assert {item.generation for item in found.items} == {0}
    await reset(desk.db, lane_id, "ann")
    again = await inspect(desk.db, lane_id)
    assert again is not None
    assert again.notes == ()


@pytest.mark.rule("CM-61")
async def test_an_unknown_conversation_gives_nothing_and_every_table_stays_as_it_was(
    desk: OperatorDesk,
) -> None:
    await a_conversation_with_notes(desk)
    unknown = replace(IDENTITY, audience="direct")
    before = await desk.rows_of_every_table()

    for which in (unknown, 4711):
        assert await inspect(desk.db, which) is None
        for act in (reset, delete):
            with pytest.raises(NotFound):
                await act(desk.db, which, "ann")
    assert await find_conversation(desk.db, unknown) is None

    assert await desk.rows_of_every_table() == before
    assert before["items"] > 0


@pytest.mark.rule("CM-17", "CM-60")
async def test_a_conversation_is_named_by_its_memory_key_whatever_the_agent_is_called(
    desk: OperatorDesk,
) -> None:
    desk.agents = {"renamed": an_agent("renamed", conversation="helper")}
    run_id = await desk.a_queued_run("renamed")
    lane_id = await find_conversation(desk.db, IDENTITY)
    by_name = replace(IDENTITY, memory_key="renamed")

    assert await inspect(desk.db, by_name) is None
    found = await inspect(desk.db, IDENTITY)
    assert found is not None
    assert (found.conversation.lane_id, found.open_runs) == (lane_id, 1)
    done = await reset(desk.db, IDENTITY, "ann")
    gone = await delete(desk.db, IDENTITY, "ann")

    assert (done.lane_id, done.generation, gone.generation) == (lane_id, 1, 2)
    assert (await desk.status(run_id))[0] == "cancelled"
    with pytest.raises(NotFound, match="memory key renamed"):
        await reset(desk.db, by_name, "ann")


PARTS = [
    ("memory_key", "HELPER"),
    ("channel", "Slack"),
    ("account", "T1 "),
    ("chat", "C1"),
    ("chat", "C1/17.50"),
    ("audience", "direct"),
]


@pytest.mark.rule("CM-61", "CM-18")
@pytest.mark.parametrize(("part", "other"), PARTS)
async def test_a_name_that_differs_in_one_part_names_nothing(
    desk: OperatorDesk, part: str, other: str
) -> None:
    await desk.a_queued_run()

    assert await inspect(desk.db, IDENTITY) is not None
    assert await inspect(desk.db, replace(IDENTITY, **{part: other})) is None


@pytest.mark.rule("CM-61")
async def test_items_are_inspected_page_by_page_newest_first(desk: OperatorDesk) -> None:
    await desk.a_queued_run()
    lane_id = await find_conversation(desk.db, IDENTITY)
    await desk.db.execute(
        "insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes)"
        " select $1, 0, 'input', 'accepted', gen_random_uuid(), 'e' || n, 'text ' || n, 6"
        " from generate_series(1, 5) n",
        lane_id,
    )

    pages = [await inspect(desk.db, IDENTITY, at_most=2, offset=offset) for offset in (0, 2, 4, 6)]

    texts = [[item.body for item in page.items] for page in pages if page is not None]
    assert texts == [["text 5", "text 4"], ["text 3", "text 2"], ["text 1"], []]
    assert {page.item_count for page in pages if page is not None} == {5}
