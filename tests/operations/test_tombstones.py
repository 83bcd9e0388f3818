"""What a reset or a delete leaves behind keeps older work from coming back, for as long as such work can come."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from tests.operations.desk import OperatorDesk
from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.admission.policy import Admitted, Duplicate, Unhealable
from workers.agents.turn import Turn
from workers.memory.limits import Limits
from workers.operations.conversations import delete, inspect, reset
from workers.operations.errors import ActRefused
from workers.operations.retention import Retention
from workers.operations.runs import cancel_runs
from workers.operations.sweeper import Sweeper

KEPT = Retention(conversations=timedelta(days=30))
LEASE = timedelta(seconds=2)
TABLES = ("items", "notes", "note_operations", "turns", "ready")


async def an_idle_conversation(desk: OperatorDesk, **event: str) -> int:
    """One whose only run has ended."""
    run_id = await desk.a_queued_run(**event)
    turn = (await desk.claim())[run_id]
    await desk.let_end(turn)
    return turn.own.lane_id


async def prune(desk: OperatorDesk) -> dict[str, int]:
    return await Sweeper(desk.db, KEPT, limits=Limits(), rest=0).prune_memory()


@pytest.mark.rule("CM-63", "CM-23")
@pytest.mark.parametrize("act", [reset, delete])
async def test_a_tombstone_outlives_the_reservations_of_its_conversation(
    desk: OperatorDesk, act: object
) -> None:
    lane_id = await an_idle_conversation(desk, event_id="Ev.old", message_id="m.old")
    await (reset if act is reset else delete)(desk.db, lane_id, "ann")
    await desk.db.execute("update reservations set expires_at = parley_now() + interval '300 days'")
    for _ in range(4):
        await shift_clock(desk.db, timedelta(days=60))
        await prune(desk)
    # Its run is lost as in a restored backup, and nothing says how it ended: the tombstone alone forbids healing.
    await desk.db.execute("delete from runs")
    await desk.db.execute("update reservations set outcome = null")

    outcome = await desk.admit(event_id="Ev.old", message_id="m.old")

    assert isinstance(outcome, Unhealable)
    found = await inspect(desk.db, lane_id)
    assert found is not None
    assert (found.item_count, found.conversation.generation) == (0, 1)
    await shift_clock(desk.db, timedelta(days=61))
    await desk.db.execute("delete from reservations where expires_at < parley_now()")
    assert (await prune(desk))["conversations"] == 1
    assert await inspect(desk.db, lane_id) is None
    assert isinstance(await desk.admit(event_id="Ev.old", message_id="m.old"), Admitted)


@pytest.mark.rule("CM-62")
async def test_a_conversation_that_was_never_reset_needs_no_tombstone(desk: OperatorDesk) -> None:
    lane_id = await an_idle_conversation(desk)
    await desk.db.execute("update reservations set expires_at = parley_now() + interval '300 days'")
    await shift_clock(desk.db, timedelta(days=60))

    assert (await prune(desk))["conversations"] == 1
    assert await inspect(desk.db, lane_id) is None


@pytest.mark.rule("CM-62")
async def test_the_old_transcript_can_be_inspected_until_its_retention_and_is_not_recalled(
    desk: OperatorDesk,
) -> None:
    lane_id = await an_idle_conversation(desk, text="a secret of old")
    await desk.db.execute(
        "insert into notes (lane_id, generation, key, body, body_bytes) values ($1, 0, 'name', 'Ada', 3)",
        lane_id,
    )

    await reset(desk.db, lane_id, "ann", keep_notes=True)
    run_id = await desk.a_queued_run(text="after the first")
    kept = (await desk.claim())[run_id]
    await desk.let_end(kept)
    await reset(desk.db, lane_id, "ann")
    run_id = await desk.a_queued_run(text="after the second")
    bare = (await desk.claim())[run_id]
    await desk.let_end(bare)

    assert kept.snapshot is not None
    assert ([note.key for note in kept.snapshot.notes], kept.snapshot.history) == (["name"], ())
    assert kept.snapshot.omitted_items == 0
    assert bare.snapshot is not None
    assert (bare.snapshot.notes, bare.snapshot.history) == ((), ())
    found = await inspect(desk.db, lane_id)
    assert found is not None
    assert [(item.generation, item.body) for item in found.items] == [
        (2, "after the second"),
        (1, "after the first"),
        (0, "a secret of old"),
    ]
    await shift_clock(desk.db, Limits().retention)
    assert (await prune(desk))["items"] == 3


@pytest.mark.rule("CM-21", "CM-62", "CM-63")
@pytest.mark.parametrize("act", [reset, delete])
async def test_an_event_of_before_stays_a_duplicate_and_starts_nothing(
    desk: OperatorDesk, act: object
) -> None:
    lane_id = await an_idle_conversation(desk, event_id="Ev.old", message_id="m.old")

    await (reset if act is reset else delete)(desk.db, lane_id, "ann")
    again = await desk.admit(event_id="Ev.old", message_id="m.old")

    assert isinstance(again, Duplicate)
    assert await desk.claim() == {}
    assert await desk.value("select count(*) from items where generation = 1") == 0


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize("status", ["running", "waiting", "backing off"])
async def test_every_turn_that_still_owns_the_conversation_forbids_both_acts_and_is_named(
    desk: OperatorDesk, status: str
) -> None:
    run_id = await desk.a_queued_run()
    turn = (await desk.claim())[run_id]
    if status == "backing off":
        await desk.let_back_off(turn)
    if status == "waiting":
        await desk.db.execute("update runs set status = 'waiting' where id = $1", run_id)
        await desk.db.execute("update turns set session_id = null")
    await desk.a_queued_run()
    before = await desk.rows_of_every_table()

    for act in (reset, delete):
        with pytest.raises(ActRefused, match=f"run {run_id} has an active turn"):
            await act(desk.db, turn.own.lane_id, "ann")

    assert await desk.rows_of_every_table() == before
    assert await desk.value("select count(*) from turns where snapshot is not null") == 1


@pytest.mark.rule("CM-60", "CM-63")
async def test_audit_rows_say_who_did_what_in_numbers_and_hold_no_text_of_people(desk: OperatorDesk) -> None:
    lane_id = await an_idle_conversation(desk, text="a planted word")
    await desk.db.execute(
        "insert into notes (lane_id, generation, key, body, body_bytes) values ($1, 0, 'planted', 'a planted', 9)",
        lane_id,
    )
    await desk.a_queued_run(text="a planted word")

    await reset(desk.db, lane_id, "ann", keep_notes=True)
    await delete(desk.db, lane_id, "bob")
    await delete(desk.db, lane_id, "bob")

    acts = [(actor, act) for actor, act, _ in await desk.acts()]
    assert acts == [("ann", "conversation.reset"), *[("bob", "conversation.delete")] * 2]
    rows = await desk.db.fetch("select audit::text as row, detail::text as detail from audit order by id")
    assert not any("planted" in row["row"] or "C1" in row["row"] for row in rows)
    assert '"cancelled_runs": 1' in rows[0]["detail"]


async def stale_and_deleted(old: Desk, new: Desk, run_id: UUID) -> int:
    """The worker `old` has lost the run's turn unheard; the run is cancelled and its conversation deleted."""
    await old.lapse()
    await new.recovery.run_once()
    assert await new.status(run_id) == "interrupted"
    await cancel_runs(new.database, [run_id], "ann")
    lane_id = int((await new.lane_of(run_id))["id"])
    await delete(new.database, lane_id, "ann")
    return lane_id


@pytest.mark.rule("CM-63")
async def test_work_that_outlives_the_delete_restores_nothing(database_url: str) -> None:
    started, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    refused: list[type[BaseException]] = []

    async def stale(turn: Turn) -> None:
        await turn.set_note("before", "a planted word")
        await turn.reply("a planted word")
        started.set()
        await go_on.wait()
        for act in (turn.set_note("after", "a planted word"), turn.reply("a planted word")):
            try:
                await act
            except BaseException as error:
                refused.append(type(error))
        ended.set()

    agent = an_agent(runs=stale, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as old,
        a_desk(database_url, agent, lease_for=LEASE) as new,
    ):
        [run_id] = await old.admit("echo", an_event(text="a planted word"))
        await old.loop.run_once()
        await eventually("the turn has written", started.is_set)
        lane_id = await stale_and_deleted(old, new, run_id)

        go_on.set()
        await eventually("the stale turn has tried to write", ended.is_set)
        await old.loop.idle()

        assert len(refused) == 2
        for table in TABLES:
            assert await new.value(f"select count(*) from {table} where lane_id = $1", lane_id) == 0, table
        assert await new.value("select count(*) from deliveries where finished_at is null") == 0
        assert await new.status(run_id) == "cancelled"
        found = await inspect(new.database, lane_id)
        assert found is not None
        assert (found.item_count, found.note_count, found.conversation.generation) == (0, 0, 1)
