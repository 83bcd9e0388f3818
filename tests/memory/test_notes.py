"""Notes on a real Postgres: edited once and under ownership, bounded, gone when expired, guarded by the policy."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from schemas.run import new_uuid7
from tests.memory.desk import MemoryDesk
from workers.memory import store
from workers.memory.access import Allow, Deny, PolicyUnavailable
from workers.memory.notes import Note, NotePage, NotOwner, Receipt, Refused
from workers.operations.retention import Retention
from workers.operations.sweeper import Sweeper

AT = (0, 1)


@pytest.mark.rule("CM-74", "CM-57")
async def test_a_repeated_operation_edits_once_and_its_receipt_holds_no_body(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()

    first = await desk.notes.set(scope, AT, "style", "short answers")
    await desk.notes.set(scope, (1, 1), "style", "long answers")
    again = await desk.notes.set(scope, AT, "style", "short answers")

    assert isinstance(first, Receipt)
    assert first.created
    assert again == first
    note = await desk.notes.get(scope, "style")
    assert note is not None
    assert note.body == "long answers"
    [receipts] = await desk.db.fetch("select string_agg(o::text, ' ') as everything from note_operations o")
    assert "answers" not in receipts["everything"]


@pytest.mark.rule("EN-18", "CM-74")
async def test_a_turn_that_lost_its_lane_edits_nothing(desk: MemoryDesk) -> None:
    scope = await desk.a_lane(epoch=2)
    for stale in (replace(scope, epoch=1), replace(scope, run_id=new_uuid7()), replace(scope, generation=1)):
        assert await desk.notes.set(stale, AT, "k", "v") == NotOwner()
        assert await desk.notes.remove(stale, AT, "k") == NotOwner()

    assert (await desk.count("notes"), await desk.count("note_operations")) == (0, 0)


@pytest.mark.rule("CM-54", "CM-78")
async def test_the_101st_live_note_is_refused_and_evicts_nothing(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    await desk.notes.set(scope, (0, 1), "short-lived", "x", timedelta(seconds=5))
    for number in range(99):
        assert isinstance(await desk.notes.set(scope, (1, number), f"k{number}", "v"), Receipt)

    refused = await desk.notes.set(scope, (2, 1), "one more", "v")
    replaced = await desk.notes.set(scope, (2, 2), "k5", "new")
    await desk.move_clock(timedelta(seconds=6))
    fits_now = await desk.notes.set(scope, (2, 3), "one more", "v")

    assert refused == Refused("too_many_notes")
    assert isinstance(replaced, Receipt)
    assert not replaced.created
    assert isinstance(fits_now, Receipt)
    assert await desk.count("notes") == 100


@pytest.mark.rule("CM-55", "CM-78")
async def test_lists_are_at_most_50_and_a_cursor_goes_on_in_its_own_scope_only(desk: MemoryDesk) -> None:
    scope, foreign = await desk.a_lane(), await desk.a_lane()
    for number in range(60):
        await desk.notes.set(scope, (0, number), f"k{number:02}", "v")
    await desk.notes.set(foreign, AT, "secret", "other chat")

    first = await desk.notes.list(scope, limit=500)
    assert isinstance(first, NotePage)
    rest = await desk.notes.list(scope, first.next_cursor)
    assert isinstance(rest, NotePage)

    assert [note.key for note in (*first.notes, *rest.notes)] == [f"k{number:02}" for number in range(60)]
    assert (len(first.notes), rest.next_cursor) == (50, None)


@pytest.mark.rule("CM-56")
async def test_an_expired_note_is_gone_from_every_read_before_any_sweep(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    await desk.notes.set(scope, (0, 1), "otp", "1234", timedelta(seconds=2))
    await desk.move_clock(timedelta(seconds=3))

    assert await desk.notes.get(scope, "otp") is None
    assert await desk.notes.list(scope) == NotePage((), None)
    async with desk.db.transaction() as tx:
        assert await store.read_notes(tx, [scope.lane_id], [0]) == {scope.lane_id: []}
    removed = await desk.notes.remove(scope, (0, 2), "otp")
    renewed = await desk.notes.set(scope, (0, 3), "otp", "new")

    assert isinstance(removed, Receipt)
    assert not removed.changed
    assert isinstance(renewed, Receipt)
    assert renewed.created
    note = await desk.notes.get(scope, "otp")
    assert note is not None
    assert (note.body, note.expires_at) == ("new", None)


@pytest.mark.rule("CM-78")
async def test_context_gets_the_most_recently_updated_notes_first(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    for number, key in enumerate(["a", "b", "c", "a"]):
        await desk.notes.set(scope, (0, number), key, f"body {number}")

    async with desk.db.transaction() as tx:
        notes = await store.read_notes(tx, [scope.lane_id], [0])

    assert [(note.key, note.body) for note in notes[scope.lane_id]] == [
        ("a", "body 3"),
        ("c", "body 2"),
        ("b", "body 1"),
    ]


@pytest.mark.rule("CM-27")
async def test_the_policy_is_asked_at_every_call_and_its_failure_is_no_permission(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    answers: list[Allow | Deny | Exception] = []

    async def authorize() -> Allow | Deny:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    book = desk.notes.open(scope, authorize)
    answers[:] = [Allow(), Deny("left the group"), Deny("left the group"), TimeoutError(), Allow()]

    assert isinstance(await book.set(AT, "k", "v"), Receipt)
    assert await book.get("k") == Deny("left the group")
    assert await book.remove((0, 2), "k") == Deny("left the group")
    with pytest.raises(PolicyUnavailable):
        await book.list()
    assert isinstance(await book.get("k"), Note)


async def test_edits_side_by_side_respect_the_bound_of_live_notes(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    for number in range(98):
        await desk.notes.set(scope, (0, number), f"k{number}", "v")

    outcomes = await asyncio.gather(*(desk.notes.set(scope, (1, n), f"late {n}", "v") for n in range(6)))

    assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 2
    assert await desk.count("notes") == 100


@pytest.mark.rule("CM-58", "CM-59")
async def test_receipts_of_open_runs_survive_a_prune(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    finished = new_uuid7()
    for run_id, done in ((scope.run_id, False), (finished, True)):
        await desk.db.execute(
            "insert into runs (id, lane_id, generation, position, agent, channel, account, event_id, event,"
            " finished_at)"
            " values ($1, $2, 0, $3, 'helper', 'web', 'main', 'e', '', case when $4 then parley_now() end)",
            run_id,
            scope.lane_id,
            2 if done else 1,
            done,
        )
    await desk.notes.set(scope, AT, "k", "v")
    await desk.db.execute("update lanes set owner_run = $1", finished)
    await desk.notes.set(replace(scope, run_id=finished), AT, "k", "w")
    await desk.move_clock(timedelta(days=31))

    assert (await Sweeper(desk.db, Retention()).prune())["note_operations"] == 1
    [row] = await desk.db.fetch("select run_id from note_operations")

    assert row["run_id"] == scope.run_id
