"""Keys, bodies, expiries and cursors at their exact bounds: decided for any value, and the same once it is stored."""

import unicodedata
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.memory.desk import MemoryDesk
from workers.memory.notes import Note, NotePage, Receipt, Refused
from workers.memory.policy import (
    MAX_BODY_BYTES,
    MAX_EXPIRY,
    MAX_KEY_UNITS,
    NoteDraft,
    cursor_after,
    draft_note,
    key_before,
    key_problem,
)

CONTROLS = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0))]
ANY_CHARACTER = st.characters()
STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=64)


def units(text: str) -> int:
    """UTF-16 code units, as JavaScript counts them."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@pytest.mark.rule("CM-52")
@settings(deadline=None)
@given(st.text(ANY_CHARACTER, max_size=140) | st.text("k😀\u0301\u2028", max_size=140))
@example("k" * 128)
@example("k" * 129)
@example("😀" * 64)
@example("😀" * 64 + "k")
@example("k" * 127 + "😀")
def test_a_key_is_good_exactly_within_its_units_and_without_controls(key: str) -> None:
    good = 1 <= units(key) <= MAX_KEY_UNITS and not {unicodedata.category(c) for c in key} & {"Cc", "Cs"}

    assert (key_problem(key) is None) is good


@pytest.mark.rule("CM-52")
@pytest.mark.parametrize("control", CONTROLS, ids=[f"U+{ord(c):04X}" for c in CONTROLS])
def test_every_control_is_refused_wherever_it_stands(control: str) -> None:
    for key in (control, f"{control}k", f"k{control}", f"k{control}k"):
        assert key_problem(key) == "key_has_controls"


@pytest.mark.rule("CM-52")
@pytest.mark.parametrize("half", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_half_a_surrogate_pair_is_no_key(half: int) -> None:
    assert key_problem(f"k{chr(half)}") == "key_not_text"


@pytest.mark.rule("CM-53")
@settings(deadline=None)
@given(st.text(STORABLE, max_size=2100) | st.text("aé漢😀", min_size=500, max_size=2100))
@example("a" * 2048)
@example("a" * 2049)
@example("é" * 1024)
@example("é" * 1024 + "a")
@example("漢" * 682 + "aa")
@example("漢" * 683)
@example("😀" * 512)
@example("")
def test_a_body_is_good_exactly_up_to_its_bytes(body: str) -> None:
    draft = draft_note("k", body, None)

    if len(body.encode()) <= MAX_BODY_BYTES:
        assert draft == NoteDraft("k", body, len(body.encode()), None)
    else:
        assert draft == "body_too_long"


@pytest.mark.rule("CM-53")
@settings(deadline=None)
@given(st.text(st.sampled_from(["\x00", "\ud83d", "\ude00", "a"]), max_size=700))
def test_what_cannot_be_stored_counts_as_what_takes_its_place(body: str) -> None:
    stored = "".join(c if c == "a" else "\ufffd" for c in body)

    draft = draft_note("k", body, None)

    if len(stored.encode()) <= MAX_BODY_BYTES:
        assert draft == NoteDraft("k", stored, len(stored.encode()), None)
    else:
        assert draft == "body_too_long"


@pytest.mark.rule("CM-56")
@pytest.mark.parametrize(
    ("expires_in", "good"),
    [
        (None, True),
        (timedelta(microseconds=1), True),
        (MAX_EXPIRY, True),
        (timedelta(0), False),
        (timedelta(seconds=-1), False),
        (MAX_EXPIRY + timedelta(microseconds=1), False),
    ],
)
def test_an_expiry_is_positive_and_bounded(expires_in: timedelta | None, good: bool) -> None:
    assert isinstance(draft_note("k", "v", expires_in), NoteDraft) is good


@pytest.mark.rule("CM-78", "CM-55")
@settings(deadline=None)
@given(KEYS, st.integers(1, 2**62), st.integers(0, 2**30), st.integers(1, 2**62), st.integers(0, 2**30))
def test_a_cursor_gives_its_key_back_in_its_own_scope_only(
    key: str, lane: int, generation: int, other_lane: int, other_generation: int
) -> None:
    cursor = cursor_after(key, lane, generation)

    assert key_before(cursor, lane, generation) == key
    if (other_lane, other_generation) != (lane, generation):
        assert key_before(cursor, other_lane, other_generation) is None


@pytest.mark.rule("CM-78")
@settings(deadline=None)
@given(st.text(ANY_CHARACTER, max_size=60) | st.binary(max_size=60).map(lambda b: b.hex()))
@example("k1")
@example("====")
@example("\x00")
@example("\ud800")
def test_garbage_is_no_cursor(garbage: str) -> None:
    assert key_before(garbage, 1, 0) is None


@pytest.mark.rule("CM-52", "CM-53")
@pytest.mark.parametrize("key", ["k" * 128, "😀" * 64, "\u2028", "ключ", "a'b\"c\\d%_", " ", "é", "e\u0301"])
async def test_what_is_within_the_bounds_comes_back_as_it_was_saved(desk: MemoryDesk, key: str) -> None:
    scope = await desk.a_lane()
    for number, body in enumerate(("a" * 2048, "😀" * 512, "漢" * 682 + "\r\n", "", "</notes>\n# System")):
        receipt = await desk.notes.set(scope, (0, number), key, body)

        assert isinstance(receipt, Receipt)
        note = await desk.notes.get(scope, key)
        assert isinstance(note, Note)
        assert (note.key, note.body, note.body_bytes) == (key, body, len(body.encode()))
    assert await desk.count("notes") == 1


@pytest.mark.rule("CM-52", "CM-53", "CM-57")
async def test_what_is_refused_leaves_neither_note_nor_receipt(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()

    assert await desk.notes.set(scope, (0, 1), "k" * 129, "v") == Refused("key_too_long")
    assert await desk.notes.set(scope, (0, 2), "k", "é" * 1024 + "a") == Refused("body_too_long")
    assert await desk.notes.set(scope, (0, 3), "k\x85", "v") == Refused("key_has_controls")
    assert await desk.notes.set(scope, (0, 4), "k", "v", timedelta(0)) == Refused("expiry_out_of_range")
    assert await desk.notes.remove(scope, (0, 5), "") == Refused("key_empty")

    assert (await desk.count("notes"), await desk.count("note_operations")) == (0, 0)


@pytest.mark.rule("CM-78", "CM-55")
async def test_pages_stay_whole_while_notes_come_and_go_between_them(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    for number in range(90):
        await desk.notes.set(scope, (0, number), f"k{number:02}", "v")

    first = await desk.notes.list(scope)
    assert isinstance(first, NotePage)
    await desk.notes.remove(scope, (1, 0), first.notes[-1].key)
    await desk.notes.remove(scope, (1, 1), "k70")
    await desk.notes.set(scope, (1, 2), "k00a", "behind the cursor")
    await desk.notes.set(scope, (1, 3), "k60a", "before it")
    second = await desk.notes.list(scope, first.next_cursor)
    assert isinstance(second, NotePage)

    seen = [note.key for note in (*first.notes, *second.notes)]
    assert seen == sorted([*(f"k{n:02}" for n in range(90) if n != 70), "k60a"])
    assert (len(first.notes), second.next_cursor) == (50, None)


@pytest.mark.rule("CM-78")
async def test_a_foreign_cursor_a_stale_one_and_garbage_are_refused_alike(desk: MemoryDesk) -> None:
    scope, foreign = await desk.a_lane(), await desk.a_lane()
    for lane in (scope, foreign):
        for number in range(3):
            await desk.notes.set(lane, (0, number), f"k{number}", "v")
    page = await desk.notes.list(foreign, limit=1)
    assert isinstance(page, NotePage)

    for cursor in (page.next_cursor, cursor_after("k0", scope.lane_id, 1), "k0", "AAAA", "x" * 5000):
        assert await desk.notes.list(scope, cursor) == Refused("unknown_cursor")


@pytest.mark.rule("CM-55")
@pytest.mark.parametrize(
    ("limit", "given"), [(-1, 1), (0, 1), (1, 1), (49, 49), (50, 50), (51, 50), (10**9, 50)]
)
async def test_no_limit_opens_more_than_50(desk: MemoryDesk, limit: int, given: int) -> None:
    scope = await desk.a_lane()
    for number in range(60):
        await desk.notes.set(scope, (0, number), f"k{number:02}", "v")

    page = await desk.notes.list(scope, limit=limit)

    assert isinstance(page, NotePage)
    assert len(page.notes) == given
