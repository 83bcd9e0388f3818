"""An operator cancels runs, and their lanes go on."""

import pytest

from schemas.run import new_uuid7
from tests.operations.desk import OperatorDesk, an_agent
from workers.operations.errors import NotFound
from workers.operations.policy import AlreadyOver, AskWorker, EndNow, RunState, decide_cancel
from workers.operations.runs import cancel_runs, cancel_runs_of, list_runs, show_run


@pytest.mark.rule("EN-27")
async def test_a_queued_head_that_is_cancelled_ends_at_once_and_the_next_run_of_its_lane_is_claimed(
    desk: OperatorDesk,
) -> None:
    first, second = await desk.a_queued_run(), await desk.a_queued_run()

    results = await cancel_runs(desk.db, [first], "ann")

    assert [(result.run_id, result.outcome) for result in results] == [(first, "cancelled")]
    assert await desk.status(first) == ("cancelled", "cancelled by operator")
    assert list(await desk.claim()) == [second]
    assert await desk.acts() == [("ann", "run.cancel", str(first))]


async def test_cancelling_behind_the_head_leaves_the_head_where_it_was(desk: OperatorDesk) -> None:
    first, second = await desk.a_queued_run(), await desk.a_queued_run()

    await cancel_runs(desk.db, [second], "ann")

    assert list(await desk.claim()) == [first]
    assert await desk.value("select count(*) from ready") == 0


@pytest.mark.rule("EN-27")
async def test_a_running_run_is_asked_to_stop_and_keeps_its_lane(desk: OperatorDesk) -> None:
    running, waiting = await desk.a_queued_run(), await desk.a_queued_run()
    await desk.claim()

    results = await cancel_runs(desk.db, [running], "ann")

    assert [result.outcome for result in results] == ["requested"]
    assert await desk.status(running) == ("running", None)
    asked = await desk.value("select cancel_requested_at from runs where id = $1", running)
    assert asked is not None
    assert await desk.claim() == {}
    assert (await desk.status(waiting))[0] == "queued"


@pytest.mark.rule("EN-27")
async def test_a_run_that_backs_off_gives_up_its_turn_its_snapshot_and_its_unsent_reply(
    desk: OperatorDesk,
) -> None:
    backing_off, behind = await desk.a_queued_run(), await desk.a_queued_run()
    turn = (await desk.claim())[backing_off]
    delivery = await desk.a_pending_reply(turn)
    await desk.let_back_off(turn)

    await cancel_runs(desk.db, [backing_off], "ann")

    assert (await desk.status(backing_off))[0] == "cancelled"
    assert await desk.value("select count(*) from turns") == 0
    assert await desk.value("select owner_run from lanes where id = $1", turn.own.lane_id) is None
    assert await desk.value("select state from deliveries where id = $1", delivery) == "failed"
    assert await desk.value("select status from items where kind = 'reply'") == "failed"
    assert list(await desk.claim()) == [behind]


async def test_a_queued_run_behind_one_that_backs_off_is_cancelled_and_the_backoff_stands(
    desk: OperatorDesk,
) -> None:
    backing_off, behind = await desk.a_queued_run(), await desk.a_queued_run()
    await desk.let_back_off((await desk.claim())[backing_off])
    due = await desk.value("select due_at from ready")

    await cancel_runs(desk.db, [behind], "ann")

    assert await desk.value("select due_at from ready") == due
    assert (await desk.status(backing_off))[0] == "queued"


async def test_cancelling_an_agents_runs_leaves_those_of_other_agents(desk: OperatorDesk) -> None:
    desk.agents = {"helper": an_agent(), "other": an_agent("other")}
    gone = {await desk.a_queued_run(chat=f"C{number}") for number in range(3)}
    kept = await desk.a_queued_run("other")

    results = await cancel_runs_of(desk.db, "helper", "ann")

    assert {result.run_id for result in results} == gone
    assert list(await desk.claim()) == [kept]


async def test_a_run_that_has_ended_is_left_alone_and_no_act_is_audited(desk: OperatorDesk) -> None:
    run_id = await desk.a_queued_run()
    await cancel_runs(desk.db, [run_id], "ann")

    results = await cancel_runs(desk.db, [run_id], "bob")

    assert [(result.outcome, result.status) for result in results] == [("over", "cancelled")]
    assert len(await desk.acts()) == 1


async def test_one_unknown_run_among_several_cancels_none(desk: OperatorDesk) -> None:
    run_id = await desk.a_queued_run()

    with pytest.raises(NotFound, match="parley runs list"):
        await cancel_runs(desk.db, [run_id, new_uuid7()], "ann")

    assert (await desk.status(run_id))[0] == "queued"


async def test_a_run_is_shown_with_its_deliveries_and_without_any_text(desk: OperatorDesk) -> None:
    run_id = await desk.a_queued_run()
    await desk.a_pending_reply((await desk.claim())[run_id])

    detail = await show_run(desk.db, run_id)

    assert detail.run.status == "running"
    assert detail.worker == "w"
    assert [delivery.state for delivery in detail.deliveries] == ["pending"]
    assert "planted" not in repr(detail)
    assert [line.run_id for line in await list_runs(desk.db, open_only=True)] == [run_id]


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("owns", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_every_state_of_a_run_has_one_decision(finished: bool, owns: bool, held: bool) -> None:
    run = RunState(new_uuid7(), 1, "failed" if finished else "queued", finished, owns, held, 3)

    decision = decide_cancel(run)

    if finished:
        assert decision == AlreadyOver("failed")
    else:
        assert decision == (AskWorker() if owns and held else EndNow())
