"""Resetting and deleting a conversation: the next generation begins, and nothing of the old one comes back."""

import pytest

from schemas.identity import Identity
from tests.operations.desk import OperatorDesk
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


async def test_inspecting_an_unknown_conversation_gives_nothing_and_creates_nothing(
    desk: OperatorDesk,
) -> None:
    assert await inspect(desk.db, 4711) is None
    assert await find_conversation(desk.db, IDENTITY) is None
    with pytest.raises(NotFound):
        await reset(desk.db, 4711, "ann")

    assert await desk.value("select count(*) from lanes") == 0
