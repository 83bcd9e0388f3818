"""A reservation whose run is gone is freed by an operator, and by nobody else."""

import pytest

from tests.operations.desk import OperatorDesk
from workers.admission.policy import Admitted, Duplicate, Unhealable
from workers.operations.errors import ActRefused, NotFound
from workers.operations.reservations import list_reservations, release, show_reservation
from workers.operations.runs import cancel_runs


async def an_orphan(desk: OperatorDesk, *, generation: int) -> int:
    """A reservation as a restored backup leaves it, in a conversation of this generation; returns its id."""
    run_id = await desk.a_queued_run(event_id="Ev.1", message_id="m.1")
    await desk.db.execute("delete from ready")
    await desk.db.execute("delete from runs where id = $1", run_id)
    await desk.db.execute("update lanes set generation = $1", generation)
    return int(await desk.value("select id from reservations"))


@pytest.mark.rule("EN-11")
async def test_an_unhealable_reservation_refuses_its_event_until_it_is_released(desk: OperatorDesk) -> None:
    orphan = await an_orphan(desk, generation=1)
    before = await desk.admit(event_id="Ev.1", message_id="m.1")

    released = await release(desk.db, orphan, "ann")
    after = await desk.admit(event_id="Ev.1", message_id="m.1")

    assert isinstance(before, Unhealable)
    assert released.event_id == "Ev.1"
    assert isinstance(after, Admitted)
    assert await desk.acts() == [("ann", "reservation.release", str(orphan))]


async def test_a_reservation_whose_run_is_open_is_not_released_and_the_run_is_named(
    desk: OperatorDesk,
) -> None:
    run_id = await desk.a_queued_run(event_id="Ev.1", message_id="m.1")
    reservation = (await list_reservations(desk.db))[0].reservation_id

    with pytest.raises(ActRefused, match=str(run_id)):
        await release(desk.db, reservation, "ann", again=True)

    assert isinstance(await desk.admit(event_id="Ev.1", message_id="m.1"), Duplicate)
    assert await desk.acts() == []


async def test_an_event_that_ran_is_freed_only_by_an_explicit_word(desk: OperatorDesk) -> None:
    run_id = await desk.a_queued_run(event_id="Ev.1", message_id="m.1")
    await cancel_runs(desk.db, [run_id], "ann")
    reservation = (await list_reservations(desk.db))[0].reservation_id

    with pytest.raises(ActRefused, match="--again"):
        await release(desk.db, reservation, "ann")
    await release(desk.db, reservation, "ann", again=True)

    assert isinstance(await desk.admit(event_id="Ev.1", message_id="m.1"), Admitted)


async def test_orphans_are_told_apart_in_the_list(desk: OperatorDesk) -> None:
    orphan = await an_orphan(desk, generation=0)
    await desk.a_queued_run(event_id="Ev.2")

    found = await list_reservations(desk.db, orphans_only=True)

    assert [line.reservation_id for line in found] == [orphan]
    assert (await show_reservation(desk.db, orphan)).run_status is None
    with pytest.raises(NotFound):
        await show_reservation(desk.db, 12345)
