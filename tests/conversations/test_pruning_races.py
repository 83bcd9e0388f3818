"""Pruning beside a claim and beside a settlement: what an open run needs stays, whoever commits first."""

from __future__ import annotations

from datetime import timedelta

import pytest

from schemas.run import RunStatus
from tests.conversations.gates import a_gate
from tests.conversations.racing import a_conversation, claim, claim_one, says
from tests.support.clock import shift_clock
from tests.support.desk import Desk
from workers.memory.limits import Limits
from workers.memory.notes import Notes, NoteScope, Receipt
from workers.operations.retention import Retention
from workers.operations.sweeper import Sweeper
from workers.turns.policy import Ended
from workers.turns.settle import Settlement

LIMITS = Limits(max_stored_items=2)


async def prune(desk: Desk) -> dict[str, int]:
    """One round over conversation memory; what it removed."""
    removed = await Sweeper(desk.database, Retention(), limits=LIMITS).prune_memory()
    return {table: rows for table, rows in removed.items() if rows}


@pytest.mark.rule("CM-59", "CM-74", "CM-58")
async def test_receipts_of_a_run_stay_until_its_settlement_has_committed(database_url: str) -> None:
    async with a_conversation(database_url, limits=LIMITS) as (desk, _):
        await prune(desk)
        [run_id] = await desk.admit("helper", says("second"))
        turn = await claim_one(desk)
        scope = NoteScope(turn.own.lane_id, turn.head.lane_generation, turn.own.epoch, run_id)
        first = await Notes(desk.database).set(scope, (0, 0), "said", "once")
        assert isinstance(first, Receipt)

        async with a_gate(desk.database, "ready", "insert") as gate:
            settling = await gate.stop(desk.settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED))))
            beside = await prune(desk)
            kept = await desk.rows("select run_id from note_operations")
            await gate.open()
            await settling

        assert "note_operations" not in beside
        assert kept == [{"run_id": run_id}]
        assert await prune(desk) == {"note_operations": 1}
        assert await desk.value("select body from notes") == "once"


@pytest.mark.rule("CM-58", "CM-51", "CM-72")
async def test_a_claim_and_a_prune_at_once_leave_the_newest_and_what_the_turn_made(database_url: str) -> None:
    async with a_conversation(database_url, limits=LIMITS) as (desk, _):
        [run_id] = await desk.admit("helper", says("second"))
        async with a_gate(desk.database, "turns", "insert") as gate:
            claiming = await gate.stop(claim(desk, LIMITS))
            beside = await prune(desk)
            await gate.open()
            [turn] = await claiming

        assert turn.snapshot is not None
        assert [each.text for each in turn.snapshot.history] == ["first", "re: first"]
        assert beside.get("items", 0) == 0
        items = "select body from items order by id"
        assert [row["body"] for row in await desk.rows(items)] == ["re: first", "second"]

        frozen = await desk.turn_of(run_id)
        await shift_clock(desk.database, LIMITS.retention + timedelta(days=1))
        await prune(desk)
        still = await desk.turn_of(run_id)
        assert [row["body"] for row in await desk.rows(items)] == ["second"]
        assert frozen is not None
        assert still is not None
        assert still["snapshot"] == frozen["snapshot"]

        await desk.settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED)))
        await prune(desk)
        assert await desk.rows(items) == []
