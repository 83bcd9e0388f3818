"""Reset and delete against everything else, each stopped where it hurts: one of the two orders, never a mix."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from schemas.run import RunStatus
from tests.conversations.gates import a_gate
from tests.conversations.racing import (
    HELPER,
    LEASE,
    NOTHING,
    Act,
    a_conversation,
    claim,
    claim_none,
    claim_one,
    either,
    generation,
    history_of_next,
    kept,
    says,
)
from tests.support.desk import Desk, a_desk
from tests.support.events import candidates_of
from workers.admission.policy import Duplicate
from workers.agents.errors import LostOwnership
from workers.agents.journal import Emit, StepRecord
from workers.memory.notes import Notes, NoteScope, NotOwner, Receipt
from workers.operations.conversations import delete
from workers.operations.errors import ActRefused
from workers.operations.runs import cancel_runs
from workers.turns.claim import Claimed
from workers.turns.policy import Ended, TryAgain
from workers.turns.settle import Settlement


def a_step(position: int = 0) -> StepRecord:
    return StepRecord(position, 0, "emit", "emit", b"", "1", "finished", b"null")


def an_emit(text: str = "late") -> Emit:
    return Emit("lab", "a", "room", (text,), recalled=True)


def scope_of(turn: Claimed) -> NoteScope:
    return NoteScope(turn.own.lane_id, turn.head.lane_generation, turn.own.epoch, turn.own.run_id)


# In admission


@either
@pytest.mark.rule("CM-64", "CM-62", "CM-21")
async def test_an_event_whose_admission_is_under_way_ends_with_the_generation_that_it_was_admitted_to(
    database_url: str, act: Act
) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        async with a_gate(desk.database, "runs", "insert") as gate:
            admitting = await gate.stop(desk.admit("helper", says("second")))
            renewing = await gate.behind(act(desk.database, lane_id, "ann"))
            await gate.open()
            [run_id] = await admitting
            renewed = await renewing

        run = await desk.run(run_id)
        assert (run["generation"], run["status"], renewed.cancelled_runs) == (0, "cancelled", 1)
        assert await desk.value("select count(*) from ready") == 0
        again = await desk.admission.admit(candidates_of(HELPER, [says("second")]))
        assert again == [Duplicate(run_id)]
        await claim_none(desk)


@either
@pytest.mark.rule("CM-64", "CM-62", "CM-63")
async def test_an_event_that_comes_while_a_reset_or_delete_commits_belongs_to_the_next_generation(
    database_url: str, act: Act
) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        async with a_gate(desk.database, "audit", "insert") as gate:
            renewing = await gate.stop(act(desk.database, lane_id, "ann"))
            admitting = await gate.behind(desk.admit("helper", says("second")))
            await gate.open()
            await renewing
            [run_id] = await admitting

        turn = await claim_one(desk)
        assert turn.own.run_id == run_id
        assert (turn.head.generation, turn.head.lane_generation) == (1, 1)
        assert turn.snapshot is not None
        assert (turn.snapshot.history, turn.snapshot.notes) == ((), ())


# At the claim


@either
@pytest.mark.rule("CM-64", "CM-72")
async def test_a_claim_that_came_first_makes_reset_and_delete_refuse_and_name_its_run(
    database_url: str, act: Act
) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        [run_id] = await desk.admit("helper", says("second"))
        before = await desk.rows("select body, generation from items order by id")
        async with a_gate(desk.database, "turns", "insert") as gate:
            claiming = await gate.stop(claim(desk))
            renewing = await gate.behind(act(desk.database, lane_id, "ann"))
            await gate.open()
            [turn] = await claiming
            with pytest.raises(ActRefused, match=str(run_id)):
                await renewing

        assert await generation(desk, lane_id) == 0
        items = await desk.rows("select body, generation from items order by id")
        assert items == [*before, {"body": "second", "generation": 0}]
        await desk.settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED)))


@either
@pytest.mark.rule("CM-62", "CM-63")
async def test_a_claim_that_meets_a_reset_or_delete_takes_nothing_and_records_nothing(
    database_url: str, act: Act
) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        [run_id] = await desk.admit("helper", says("second"))
        async with a_gate(desk.database, "audit", "insert") as gate:
            renewing = await gate.stop(act(desk.database, lane_id, "ann"))
            await claim_none(desk)
            await gate.open()
            await renewing

        await claim_none(desk)
        assert await desk.status(run_id) == "cancelled"
        assert "second" not in (await kept(desk))["items"]
        assert await desk.value("select count(*) from turns") == 0


# In a turn


@either
@pytest.mark.rule("CM-64", "CM-76")
@pytest.mark.parametrize("state", ["running", "backing off", "released", "its worker gone"])
async def test_a_turn_is_active_until_it_is_settled_whoever_holds_it(
    database_url: str, act: Act, state: str
) -> None:
    async with a_conversation(database_url, lease_for=LEASE) as (desk, lane_id):
        [run_id] = await desk.admit("helper", says("second"))
        turn = await claim_one(desk)
        frozen = await desk.turn_of(run_id)
        if state == "backing off":
            await desk.settlements.settle(Settlement(turn, TryAgain(timedelta(hours=1), "busy")))
        elif state == "released":
            await desk.claims.give_back(desk.session.id, ())
        elif state == "its worker gone":
            await desk.lapse()

        with pytest.raises(ActRefused, match=str(run_id)):
            await act(desk.database, lane_id, "ann")

        now = await desk.turn_of(run_id)
        assert frozen is not None
        assert now is not None
        assert (now["snapshot"], await generation(desk, lane_id)) == (frozen["snapshot"], 0)
        assert (await desk.lane_of(run_id))["owner_run"] == run_id


@either
@pytest.mark.rule("CM-62", "CM-63", "CM-74")
@pytest.mark.parametrize("write", ["note", "reply", "settlement"])
async def test_what_a_cancelled_turn_still_writes_while_its_conversation_is_renewed_is_refused(
    database_url: str, act: Act, write: str
) -> None:
    """Its worker was given up, an operator cancelled the run; the write waits for the lane and finds it changed."""
    async with (
        a_conversation(database_url, lease_for=LEASE) as (desk, lane_id),
        a_desk(database_url, HELPER, lease_for=LEASE) as other,
    ):
        [run_id] = await desk.admit("helper", says("second"))
        turn = await claim_one(desk)
        await desk.lapse()
        await other.recovery.run_once()
        await cancel_runs(desk.database, [run_id], "ann")

        async with a_gate(desk.database, "audit", "insert") as gate:
            renewing = await gate.stop(act(other.database, lane_id, "ann"))
            # What matches no owner any more does not even wait.
            writing = asyncio.ensure_future(writes_late(desk, turn, write))
            await gate.open()
            await renewing
            outcome = await writing

        assert isinstance(outcome, NotOwner | LostOwnership), outcome
        found = await kept(desk)
        assert not any("late" in text for texts in found.values() for text in texts)
        assert found["notes"] == []
        assert await desk.value("select count(*) from run_steps where run_id = $1", run_id) == 0
        assert await desk.status(run_id) == "cancelled"
        if act is delete:
            assert found == NOTHING


async def writes_late(desk: Desk, turn: Claimed, write: str) -> object:
    """What the write of a turn comes to, or the loss that it raises."""
    try:
        match write:
            case "note":
                return await Notes(desk.database).set(scope_of(turn), (0, 0), "said", "late")
            case "reply":
                await desk.journal.of(turn, {}).write(a_step(), an_emit())
            case _:
                await desk.settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED)))
    except LostOwnership as error:
        return error
    return None


@either
@pytest.mark.rule("CM-74", "CM-64")
async def test_a_note_edit_under_way_is_finished_and_its_turn_named(database_url: str, act: Act) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        [run_id] = await desk.admit("helper", says("second"))
        turn = await claim_one(desk)
        async with a_gate(desk.database, "note_operations", "insert") as gate:
            editing = await gate.stop(Notes(desk.database).set(scope_of(turn), (0, 0), "said", "edited"))
            renewing = await gate.behind(act(desk.database, lane_id, "ann"))
            await gate.open()
            assert isinstance(await editing, Receipt)
            with pytest.raises(ActRefused, match=str(run_id)):
                await renewing

        found = await kept(desk)
        assert found["notes"] == ["edited"]
        assert found["operations"].count("said") == 2


# At settlement


@either
@pytest.mark.rule("CM-75", "CM-62", "CM-63")
async def test_a_settlement_that_came_first_clears_the_snapshot_and_lets_the_renewal_end_what_is_queued(
    database_url: str, act: Act
) -> None:
    async with a_conversation(database_url) as (desk, lane_id):
        _, queued = await desk.admit("helper", says("second"), says("third"))
        turn = await claim_one(desk)
        settling_as = Settlement(turn, Ended(RunStatus.SUCCEEDED))
        async with a_gate(desk.database, "ready", "insert") as gate:
            settling = await gate.stop(desk.settlements.settle(settling_as))
            renewing = await gate.behind(act(desk.database, lane_id, "ann"))
            await gate.open()
            await settling
            renewed = await renewing

        assert await desk.status(turn.own.run_id) == "succeeded"
        assert (await desk.status(queued), renewed.cancelled_runs) == ("cancelled", 1)
        assert (await kept(desk))["snapshots"] == []
        assert await desk.value("select count(*) from ready") == 0
        assert await history_of_next(desk) == []


# During recovery


@either
@pytest.mark.rule("CM-37", "CM-64", "CM-71")
async def test_a_takeover_under_way_keeps_the_owner_that_reset_and_delete_name(
    database_url: str, act: Act
) -> None:
    async with (
        a_conversation(database_url, lease_for=LEASE) as (desk, lane_id),
        a_desk(database_url, HELPER, lease_for=LEASE) as other,
    ):
        [run_id] = await desk.admit("helper", says("second"))
        turn = await claim_one(desk)
        before = await desk.turn_of(run_id)
        await desk.lapse()
        async with a_gate(desk.database, "ready", "insert") as gate:
            recovering = await gate.stop(other.recovery.run_once())
            renewing = await gate.behind(act(other.database, lane_id, "ann"))
            await gate.open()
            await recovering
            with pytest.raises(ActRefused, match=str(run_id)):
                await renewing

        resumed = await claim_one(other)
        after = await desk.turn_of(run_id)
        assert before is not None
        assert after is not None
        assert resumed.own.run_id == run_id
        assert resumed.own.epoch > turn.own.epoch
        assert (after["snapshot"], after["snapshot_digest"]) == (
            before["snapshot"],
            before["snapshot_digest"],
        )


@either
@pytest.mark.rule("CM-62", "CM-63", "CM-71")
async def test_a_recovery_that_meets_a_renewal_frees_and_queues_nothing_of_the_old_generation(
    database_url: str, act: Act
) -> None:
    """The queue lost the lane's entry, as after a restored backup: recovery would put the old head back."""
    async with a_conversation(database_url) as (desk, lane_id):
        [run_id] = await desk.admit("helper", says("second"))
        await desk.database.execute("delete from ready")
        async with a_gate(desk.database, "audit", "insert") as gate:
            renewing = await gate.stop(act(desk.database, lane_id, "ann"))
            swept = await desk.recovery.run_once()
            await gate.open()
            await renewing

        assert swept.requeued == 0
        await desk.recovery.run_once()
        assert await desk.value("select count(*) from ready") == 0
        assert await desk.status(run_id) == "cancelled"
