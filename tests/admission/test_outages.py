"""One poison row is refused alone; whatever else goes wrong, the batch is tried again and no good row is lost."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from tests.admission.conftest import Desk
from tests.support.events import an_agent, an_event, candidates_of
from tests.support.waiting import eventually
from workers.admission.policy import Admitted, Candidate

BOUND = an_agent("helper", conversation=True)


@pytest.mark.rule("EN-14")
@pytest.mark.parametrize(
    "poisoned",
    [
        lambda c: replace(c, event_id="a\0b"),
        lambda c: replace(c, traceparent="\ud800"),
        lambda c: replace(c, hash_version=70_000),
    ],
    ids=["the server refuses it", "the driver cannot encode it", "it is out of range"],
)
async def test_one_poison_row_among_500_is_refused_and_499_go_through(
    desk: Desk, poisoned: Callable[[Candidate], Candidate]
) -> None:
    batch = candidates_of(BOUND, [an_event() for _ in range(500)])
    batch[321] = poisoned(batch[321])

    outcomes = await desk.admission.admit(batch)

    assert [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, Admitted)] == [321]
    assert isinstance(outcomes[321], Exception)
    assert await desk.counts() == (499, 499)
    assert await desk.count("ready") == 499


@pytest.mark.rule("EN-14")
@pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "25006", "53100", "53300", "57P01"])
async def test_an_error_that_blames_no_row_retries_the_batch(desk: Desk, code: str) -> None:
    await fail_first(desk, 3, f"raise exception 'injected' using errcode = '{code}'")

    outcomes = await desk.admit(BOUND, *[an_event() for _ in range(20)])

    assert [type(outcome) for outcome in outcomes] == [Admitted] * 20
    assert await desk.counts() == (20, 20)
    assert await tries(desk) == 4


@pytest.mark.rule("EN-14")
async def test_a_lost_connection_retries_the_batch(desk: Desk) -> None:
    await fail_first(desk, 3, "perform pg_terminate_backend(pg_backend_pid())")

    outcomes = await desk.admit(BOUND, *[an_event() for _ in range(20)])

    assert [type(outcome) for outcome in outcomes] == [Admitted] * 20
    assert await desk.counts() == (20, 20)


@pytest.mark.rule("EN-14")
async def test_an_outage_longer_than_the_patience_refuses_no_row_and_leaves_none(desk: Desk) -> None:
    await fail_first(desk, 10_000, "raise exception 'injected' using errcode = '53200'")
    impatient = desk.admission_with(patience=timedelta(milliseconds=100))

    outcomes = await impatient.admit(desk.candidates(BOUND, *[an_event() for _ in range(8)]))

    assert [type(outcome) for outcome in outcomes] == [asyncpg.OutOfMemoryError] * 8
    assert await desk.counts() == (0, 0)


@pytest.mark.rule("EN-14", "EN-19")
async def test_a_lane_that_somebody_holds_for_too_long_is_waited_for_and_then_tried_again(desk: Desk) -> None:
    await desk.admit(BOUND, an_event(chat="c"))
    async with desk.short_of_patience(timedelta(milliseconds=100)) as (admission, met):
        async with desk.database.transaction() as holder:
            await holder.execute("select from lanes for update")
            task = asyncio.create_task(admission.admit(desk.candidates(BOUND, an_event(chat="c"))))
            await eventually("the lock was given up twice", lambda: len(met) >= 2)

        [outcome] = await task

    assert isinstance(outcome, Admitted)
    assert set(met) == {"55P03"}
    assert [run["position"] for run in await desk.runs()] == [1, 2]


@pytest.mark.rule("EN-14")
async def test_admission_locks_lanes_by_id_before_anything_else(desk: Desk) -> None:
    """While another holds the first lane nothing is locked: neither a later lane nor a reservation."""
    events = [an_event(chat=f"c{n}") for n in range(3)]
    await desk.admit(BOUND, *events)
    async with desk.database.transaction() as holder:
        await holder.execute("select from lanes order by id limit 1 for no key update")
        later = asyncio.create_task(
            desk.admit(BOUND, *[an_event(chat=event.chat) for event in reversed(events)])
        )
        await desk.until_somebody_waits()

        free = await holder.fetch("select from lanes order by id offset 1 for no key update skip locked")

    assert len(free) == 2
    assert [type(outcome) for outcome in await later] == [Admitted] * 3
    assert await desk.deadlocks() == 0


async def fail_first(desk: Desk, times: int, act: str) -> None:
    """Let the first `times` inserts of reservations in this database do `act`."""
    await desk.database.execute("create sequence tries")
    await desk.database.execute(
        f"create function fail() returns trigger language plpgsql as $$ begin"
        f" if nextval('tries') <= {times} then {act}; end if; return null; end $$"
    )
    await desk.database.execute(
        "create trigger fail before insert on reservations for each statement execute function fail()"
    )


async def tries(desk: Desk) -> int:
    return int((await desk.database.fetch("select last_value from tries"))[0][0])
