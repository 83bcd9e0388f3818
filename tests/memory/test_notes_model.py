"""Notes beside a plain dictionary: whatever is done in whatever order, both say the same."""

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.memory.desk import MemoryDesk
from tests.support.clock import shift_clock
from workers.memory import store
from workers.memory.notes import Note, NotePage, NoteScope, Receipt
from workers.operations.retention import Retention
from workers.operations.sweeper import Sweeper

KEYS = st.sampled_from(["a", "b", "é", "😀", "a b"])
SECONDS = st.sampled_from([None, 45, 135])
ACTS = st.one_of(
    st.tuples(st.just("set"), KEYS, SECONDS),
    st.tuples(st.just("remove"), KEYS, st.none()),
    st.tuples(st.just("again"), KEYS, st.none()),
    st.tuples(st.just("pass"), st.just(""), st.sampled_from([30, 60])),
    st.tuples(st.just("sweep"), st.just(""), st.none()),
)


@dataclass
class Beside:
    """What there should be: bodies, when each expires on a clock that starts at 0, and the operations done."""

    now: int = 0
    notes: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    done: list[tuple[tuple[int, int], str, str, Receipt]] = field(default_factory=list)

    def live(self) -> dict[str, str]:
        return {key: body for key, (body, until) in self.notes.items() if until is None or until > self.now}


@pytest.mark.rule("CM-56", "CM-74", "CM-55")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(ACTS, max_size=25))
async def test_notes_are_what_a_dictionary_with_a_clock_would_hold(
    desk: MemoryDesk, acts: list[tuple[str, str, int | None]]
) -> None:
    scope, beside, numbers = await desk.a_lane(), Beside(), count()
    for act, key, seconds in acts:
        await carry_out(desk, scope, beside, (0, next(numbers)), act, key, seconds)
        await compare(desk, scope, beside)


async def carry_out(
    desk: MemoryDesk,
    scope: NoteScope,
    beside: Beside,
    at: tuple[int, int],
    act: str,
    key: str,
    seconds: int | None,
) -> None:
    was_live = key in beside.live()
    match act:
        case "set":
            body = f"body {at[1]}"
            expires_in = None if seconds is None else timedelta(seconds=seconds)
            receipt = await desk.notes.set(scope, at, key, body, expires_in)
            assert isinstance(receipt, Receipt)
            assert receipt.created is not was_live
            beside.notes[key] = (body, None if seconds is None else beside.now + seconds)
            beside.done.append((at, act, key, receipt))
        case "remove":
            receipt = await desk.notes.remove(scope, at, key)
            assert isinstance(receipt, Receipt)
            assert receipt.changed is was_live
            beside.notes.pop(key, None)
            beside.done.append((at, act, key, receipt))
        case "again" if beside.done:
            then, what, edited, first = beside.done[-1]
            repeated = (
                desk.notes.set(scope, then, edited, "another body")
                if what == "set"
                else desk.notes.remove(scope, then, edited)
            )
            assert await repeated == first
        case "pass":
            await shift_clock(desk.db, timedelta(seconds=seconds or 0))
            beside.now += seconds or 0
        case "sweep":
            await Sweeper(desk.db, Retention(), rest=0).prune_memory()


async def compare(desk: MemoryDesk, scope: NoteScope, beside: Beside) -> None:
    live = beside.live()
    page = await desk.notes.list(scope)
    assert isinstance(page, NotePage)
    assert [(note.key, note.body) for note in page.notes] == sorted(
        live.items(), key=lambda item: item[0].encode()
    )
    for key in ("a", "b", "é", "😀", "a b"):
        note = await desk.notes.get(scope, key)
        assert (note.body if isinstance(note, Note) else None) == live.get(key)
    async with desk.db.transaction() as tx:
        recalled = await store.read_notes(tx, [scope.lane_id], [scope.generation])
    assert {note.key: note.body for note in recalled[scope.lane_id]} == live
