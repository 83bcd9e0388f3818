"""How long a reservation lives, and what becomes of one whose run is missing."""

from datetime import timedelta
from uuid import UUID

import pytest

from tests.admission.conftest import Desk
from tests.support.clock import shift_clock
from tests.support.events import an_agent, an_event
from workers.admission.policy import Admitted, Duplicate, Healed, Mismatch, Unhealable
from workers.operations import reservations

BOUND = an_agent("helper", conversation=True)
UNBOUND = an_agent("echo")
TTL = timedelta(days=7)


@pytest.mark.rule("EN-10")
async def test_a_reservation_lives_seven_days_by_default_and_as_long_as_told(desk: Desk) -> None:
    await desk.admit(BOUND, an_event(event_id="default"))
    longer = desk.admission_with(idempotency_ttl=timedelta(days=30))
    await longer.admit(desk.candidates(BOUND, an_event(event_id="longer")))

    rows = await desk.database.fetch("select event_id, expires_at - created_at as lives from reservations")

    lives = {row["event_id"]: round(row["lives"] / timedelta(days=1), 3) for row in rows}
    assert lives == {"default": 7, "longer": 30}


@pytest.mark.rule("EN-10")
async def test_an_expired_reservation_stays_until_its_run_is_terminal(desk: Desk) -> None:
    event = an_event()
    await desk.admit(BOUND, event)
    await shift_clock(desk.database, TTL + timedelta(hours=1))

    kept = await desk.expire()
    again = await desk.admit(BOUND, event)
    await desk.database.execute("update runs set status = 'succeeded', finished_at = now()")
    removed = await desk.expire()

    assert (kept, removed) == (0, 1)
    assert [type(outcome) for outcome in again] == [Duplicate]


@pytest.mark.rule("EN-10")
async def test_a_terminal_run_keeps_its_reservation_until_it_expires(desk: Desk) -> None:
    event = an_event()
    await desk.admit(BOUND, event)
    await desk.database.execute("update runs set status = 'succeeded', finished_at = now()")
    await shift_clock(desk.database, TTL - timedelta(hours=1))

    removed = await desk.expire()

    assert removed == 0
    assert [type(outcome) for outcome in await desk.admit(BOUND, event)] == [Duplicate]


@pytest.mark.rule("EN-10")
async def test_expiry_goes_in_batches_and_beside_a_locked_row(desk: Desk) -> None:
    await desk.admit(UNBOUND, *[an_event() for _ in range(7)])
    await desk.database.execute("update runs set status = 'failed', finished_at = now()")
    await shift_clock(desk.database, TTL * 2)

    async with desk.database.transaction() as tx:
        await tx.execute("select from reservations order by id limit 1 for update")
        removed = [await desk.expire(at_most=4) for _ in range(3)]

    assert removed == [4, 2, 0]
    assert await desk.expire() == 1


@pytest.mark.rule("EN-11")
async def test_an_orphan_of_a_restored_backup_heals_once(desk: Desk) -> None:
    event = an_event()
    await desk.admit(BOUND, event)
    await lose_runs(desk)

    outcomes = await desk.admit(BOUND, event, event)

    [run] = await desk.runs()
    assert outcomes == [Healed(run["id"]), Duplicate(run["id"])]
    assert await desk.admit(BOUND, event) == [Duplicate(run["id"])]
    assert await desk.counts() == (1, 1)
    assert await desk.count("ready") == 1


@pytest.mark.rule("EN-11")
async def test_an_orphan_heals_by_its_twin_and_in_a_lane_made_anew(desk: Desk) -> None:
    await desk.admit(UNBOUND, an_event(event_id="E1", message_id="m"))
    await lose_runs(desk)
    await desk.database.execute("delete from lanes")

    [healed] = await desk.admit(UNBOUND, an_event(event_id="E2", message_id="m"))

    [run] = await desk.runs()
    [reservation] = await desk.database.fetch("select run_id, lane_id from reservations")
    assert healed == Healed(run["id"])
    assert (reservation["run_id"], reservation["lane_id"]) == (run["id"], run["lane_id"])


@pytest.mark.rule("EN-11")
async def test_an_orphan_with_a_recorded_outcome_is_a_duplicate(desk: Desk) -> None:
    event = an_event()
    [first] = await desk.admit(BOUND, event)
    await lose_runs(desk)
    await desk.database.execute("update reservations set outcome = 'succeeded'")

    assert isinstance(first, Admitted)
    assert await desk.admit(BOUND, event) == [Duplicate(first.run_id)]
    assert await desk.count("runs") == 0


@pytest.mark.rule("EN-11")
@pytest.mark.parametrize("reserved_before_the_reset", [True, False])
async def test_after_a_reset_an_orphan_is_unhealable_until_it_is_released(
    desk: Desk, reserved_before_the_reset: bool
) -> None:
    event = an_event()
    if not reserved_before_the_reset:
        await desk.admit(BOUND, an_event(chat=event.chat))
        await desk.database.execute("update lanes set generation = 1")
    [first] = await desk.admit(BOUND, event)
    await lose_runs(desk)
    await desk.database.execute("update lanes set generation = 1")

    refused = await desk.admit(BOUND, event)
    reservation = await desk.database.fetch("select id from reservations where event_id = $1", event.event_id)
    await reservations.release(desk.database, reservation[0]["id"], "operator")

    assert isinstance(first, Admitted)
    assert refused == [Unhealable(first.run_id)]
    assert [type(outcome) for outcome in await desk.admit(BOUND, event)] == [Admitted]


@pytest.mark.rule("EN-11")
async def test_after_a_reset_an_orphan_is_unhealable_until_it_expires(desk: Desk) -> None:
    event = an_event()
    [first] = await desk.admit(BOUND, event)
    await lose_runs(desk)
    await desk.database.execute("update lanes set generation = 1")
    refused = await desk.admit(BOUND, event)

    await shift_clock(desk.database, TTL * 2)
    await desk.expire()

    assert isinstance(first, Admitted)
    assert refused == [Unhealable(first.run_id)]
    assert [type(outcome) for outcome in await desk.admit(BOUND, event)] == [Admitted]


@pytest.mark.rule("EN-11", "EN-9")
async def test_another_payload_does_not_heal_an_orphan(desk: Desk) -> None:
    event = an_event(event_id="E", chat="c")
    await desk.admit(BOUND, event)
    await lose_runs(desk)

    [outcome] = await desk.admit(BOUND, an_event(event_id="E", chat="c", text="another"))

    assert isinstance(outcome, Mismatch)
    assert await desk.count("runs") == 0


@pytest.mark.rule("EN-11")
async def test_neighbours_of_an_orphan_are_admitted_in_their_order(desk: Desk) -> None:
    first, second, third = (an_event(chat="c") for _ in range(3))
    await desk.admit(BOUND, second)
    await lose_runs(desk)

    outcomes = await desk.admit(BOUND, first, second, third)

    assert [type(outcome) for outcome in outcomes] == [Admitted, Healed, Admitted]
    assert [run["event_id"] for run in await desk.runs()] == [e.event_id for e in (first, second, third)]


async def lose_runs(desk: Desk) -> list[UUID]:
    """Remove every run, as where reservations were restored from a later backup than runs."""
    await desk.database.execute("delete from ready")
    rows = await desk.database.fetch("delete from runs returning id")
    return [row["id"] for row in rows]
