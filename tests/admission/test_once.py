"""One run an event and agent, whatever comes twice and in whatever company."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import asyncpg
import pytest

from schemas.event import Event
from tests.admission.conftest import Desk
from tests.support.clock import shift_clock
from tests.support.events import an_agent, an_event, candidates_of
from workers.admission.policy import Admitted, Duplicate, Mismatch
from workers.agents.agent import Agent

ECHO = an_agent()
BOUND = an_agent("helper", conversation=True)

each_kind_of_lane = pytest.mark.parametrize("agent", [ECHO, BOUND], ids=["unbound", "bound"])


@pytest.mark.rule("EN-8")
async def test_a_redelivery_is_a_duplicate_of_the_first_run(desk: Desk) -> None:
    event = an_event()
    [first] = await desk.admit(ECHO, event)

    [again] = await desk.admit(ECHO, event)

    assert isinstance(first, Admitted)
    assert again == Duplicate(first.run_id)
    assert await desk.counts() == (1, 1)


@pytest.mark.rule("EN-8", "EN-13")
@each_kind_of_lane
async def test_ten_copies_in_one_batch_are_one_run(desk: Desk, agent: Agent) -> None:
    """The run of a reservation made in the same batch is not a row yet: it must not pass for an orphan."""
    outcomes = await desk.admit(agent, *[an_event()] * 10)

    admitted = [outcome for outcome in outcomes if isinstance(outcome, Admitted)]
    assert len(admitted) == 1
    assert [outcome for outcome in outcomes if outcome not in admitted] == [Duplicate(admitted[0].run_id)] * 9
    assert await desk.counts() == (1, 1)


@pytest.mark.rule("EN-8")
@each_kind_of_lane
async def test_message_and_app_mention_are_one_run_and_so_is_the_twins_redelivery(
    desk: Desk, agent: Agent
) -> None:
    """Slack tells of one mention twice, by two event ids, of two kinds and with another text."""
    message = an_event(event_id="Ev1", message_id="C1:17.5", chat="C1", text="<@B> hi")
    mention = an_event(event_id="Ev2", message_id="C1:17.5", chat="C1", text="hi", kind="message.mention")
    [first] = await desk.admit(agent, message)

    later = [(await desk.admit(agent, twin))[0] for twin in (mention, mention, message)]

    assert isinstance(first, Admitted)
    assert later == [Duplicate(first.run_id)] * 3
    assert await desk.counts() == (1, 1)


@pytest.mark.rule("EN-8")
@each_kind_of_lane
async def test_twins_in_one_batch_are_one_run(desk: Desk, agent: Agent) -> None:
    twins = [an_event(event_id=f"Ev{n}", message_id="m", chat="C", text=str(n)) for n in range(2)]

    outcomes = await desk.admit(agent, *twins)

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Admitted", "Duplicate"]
    assert await desk.counts() == (1, 1)


@pytest.mark.rule("EN-8")
@each_kind_of_lane
async def test_two_batches_of_twins_in_opposite_order_of_event_ids_do_not_deadlock(
    desk: Desk, agent: Agent
) -> None:
    """In event-id order the first batch would hold message 0 and want message 1, the second the reverse."""
    for turn in range(20):
        rising = [twin(turn, message, f"a-{message:02}") for message in range(30)]
        falling = [twin(turn, message, f"b-{99 - message:02}") for message in range(29, -1, -1)]

        await asyncio.gather(desk.admit(agent, *rising), desk.admit(agent, *falling))

    assert await desk.counts() == (600, 600)
    assert await desk.deadlocks() == 0


def twin(turn: int, message: int, name: str) -> Event:
    return an_event(event_id=f"{turn}-{name}", message_id=f"{turn}-{message}", chat=f"{turn}-{message}")


@pytest.mark.rule("EN-8", "EN-9")
async def test_who_waited_for_a_competitors_commit_is_judged_by_the_competitors_row(desk: Desk) -> None:
    """A one-statement insert-or-compare sees neither its own insert nor the row that it lost against."""
    first = an_event(event_id="E1", message_id="m", chat="c")
    mention = an_event(event_id="E2", message_id="m", chat="c")
    other = an_event(event_id="E1", message_id="m", chat="c", text="another payload")

    async with desk.holding_before_commit(ECHO, first) as held:
        later = asyncio.create_task(desk.admit(ECHO, mention, other))
        await desk.until_somebody_waits()
        held.set()
        outcomes = await later

    [run] = await desk.runs()
    assert outcomes == [Duplicate(run["id"]), Mismatch(run["id"])]


@pytest.mark.rule("EN-9")
async def test_the_same_event_id_with_another_payload_is_a_mismatch_and_the_first_run_is_untouched(
    desk: Desk,
) -> None:
    """Elsewhere another body under a key in progress was told "already processing" (idempot-js issue 183)."""
    event = an_event(event_id="E", chat="c", text="pay 10")
    [first] = await desk.admit(BOUND, event)
    before = await desk.runs()

    outcomes = await desk.admit(BOUND, an_event(event_id="E", chat="c", text="pay 1000"))
    await desk.database.execute("update runs set status = 'running'")
    outcomes += await desk.admit(BOUND, an_event(event_id="E", chat="d", text="pay 10"))
    await desk.database.execute("update runs set status = 'queued'")

    assert isinstance(first, Admitted)
    assert outcomes == [Mismatch(first.run_id)] * 2
    assert await desk.runs() == before


@pytest.mark.rule("EN-9")
async def test_the_hash_covers_what_is_said_and_its_version_is_stored(desk: Desk) -> None:
    said = {"event_id": "E", "chat": "c", "text": "hello"}
    [first] = await desk.admit(ECHO, an_event(**said, sender_name="Ann", payload={"a": 1, "b": 2}))

    again = await desk.admit(ECHO, an_event(**said, sender_name="Ann B.", payload={"b": 2, "a": 1}))

    assert isinstance(first, Admitted)
    assert again == [Duplicate(first.run_id)]
    assert [
        (row["hash_version"], len(row["payload_hash"]))
        for row in await desk.database.fetch("select * from reservations")
    ] == [(1, 32)]


@pytest.mark.rule("EN-9")
async def test_hashes_of_two_versions_are_not_held_against_each_other(desk: Desk) -> None:
    event = an_event()
    [first] = await desk.admit(ECHO, event)
    await desk.database.execute("update reservations set hash_version = 0, payload_hash = 'old'")

    assert isinstance(first, Admitted)
    assert await desk.admit(ECHO, event) == [Duplicate(first.run_id)]


@pytest.mark.rule("EN-13")
async def test_two_agents_get_a_run_each_and_a_redelivery_runs_neither_again(desk: Desk) -> None:
    event = an_event()
    first = [*await desk.admit(ECHO, event), *await desk.admit(BOUND, event)]

    again = [*await desk.admit(BOUND, event), *await desk.admit(ECHO, event)]

    assert [type(outcome) for outcome in first] == [Admitted] * 2
    assert [type(outcome) for outcome in again] == [Duplicate] * 2
    assert [run["agent"] for run in await desk.runs()] == ["echo", "helper"]


@pytest.mark.rule("EN-7", "EN-14")
async def test_a_commit_whose_answer_was_lost_is_recognized_as_the_own_success(desk: Desk) -> None:
    """The connection breaks after the server has committed; the batch is tried again under the same run ids."""
    events = [an_event() for _ in range(3)]
    asked = candidates_of(ECHO, events)
    lost = iter([True])

    def reached(point: str) -> None:
        if point == "admission.committed" and next(lost, False):
            raise asyncpg.ConnectionDoesNotExistError("the answer to commit was lost")

    outcomes = await desk.admission_with(reached=reached).admit(asked)

    assert outcomes == [Admitted(each.run_id) for each in asked]
    assert await desk.counts() == (3, 3)


@pytest.mark.rule("EN-10")
async def test_a_reservation_that_expires_between_meeting_and_reading_it_is_made_anew(
    desk: Desk, before_reading: Callable[..., None]
) -> None:
    event = an_event()
    await desk.admit(ECHO, event)
    await desk.database.execute("update runs set status = 'succeeded', finished_at = now()")
    await shift_clock(desk.database, timedelta(days=8))
    before_reading(desk.expire)

    [outcome] = await desk.admit(ECHO, event)

    assert isinstance(outcome, Admitted)
    assert await desk.counts() == (1, 2)
