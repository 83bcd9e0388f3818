"""Recall chooses whole records, the newest that fit, renders them oldest first, and counts the rest."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.memory.limits import Conversations, InvalidLimit, Limits, MissingPolicy
from workers.memory.policy import MAX_BODY_BYTES, NoteDraft, draft_note, key_problem
from workers.memory.recall import HistoryItem, note_bytes, select
from workers.memory.snapshot import (
    Exchange,
    NewerSnapshot,
    NoteEntry,
    Snapshot,
    UnreadableSnapshot,
    decode,
    digest,
    encode,
)

NOW = datetime(2031, 3, 10, 23, 30, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
bodies = st.one_of(st.none(), texts)
histories = st.lists(st.tuples(st.sampled_from(["input", "reply"]), bodies), max_size=12)
note_lists = st.lists(st.tuples(texts.filter(bool), texts), max_size=8)
limits = st.builds(
    Limits,
    max_items=st.integers(1, 6),
    max_history_bytes=st.integers(1, 60),
    max_notes_bytes=st.integers(1, 60),
)


def items(history: list[tuple[Any, str | None]]) -> list[HistoryItem]:
    """Newest first, as the store gives them."""
    return [
        HistoryItem(
            len(history) - at,
            kind,
            text,
            99 if text is None else len(text.encode()),
            NOW - timedelta(minutes=at),
        )
        for at, (kind, text) in enumerate(history)
    ]


def notes_of(pairs: list[tuple[str, str]]) -> list[NoteEntry]:
    return [NoteEntry(key, body, NOW - timedelta(minutes=at)) for at, (key, body) in enumerate(pairs)]


@pytest.mark.rule("CM-49", "CM-50")
@given(history=histories, limits=limits)
def test_history_is_whole_records_newest_chosen_oldest_first_within_both_bounds(
    history: list[tuple[Any, str | None]], limits: Limits
) -> None:
    snapshot = select(items(history), [], limits)

    spent = 0
    taken: list[Exchange] = []
    for kind, text in history:
        fits = text is not None and len(taken) < limits.max_items
        if text is not None and fits and spent + len(text.encode()) <= limits.max_history_bytes:
            spent += len(text.encode())
            taken.append(Exchange("user" if kind == "input" else "assistant", text))
    assert list(snapshot.history) == taken[::-1]
    assert snapshot.omitted_items == len(history) - len(taken)
    assert sum(len(exchange.text.encode()) for exchange in snapshot.history) <= limits.max_history_bytes
    assert len(snapshot.history) <= limits.max_items


@pytest.mark.rule("CM-44", "CM-78")
@given(pairs=note_lists, limits=limits)
def test_notes_are_the_most_recently_updated_that_fit_and_the_rest_is_counted(
    pairs: list[tuple[str, str]], limits: Limits
) -> None:
    notes = notes_of(pairs)
    snapshot = select([], notes, limits)

    assert sum(map(note_bytes, snapshot.notes)) <= limits.max_notes_bytes
    assert snapshot.omitted_notes == len(notes) - len(snapshot.notes)
    assert [note for note in notes if note in snapshot.notes] == list(snapshot.notes)
    if notes and note_bytes(notes[0]) <= limits.max_notes_bytes:
        assert snapshot.notes[0] == notes[0]


@pytest.mark.rule("CM-43", "CM-50")
def test_bytes_are_exact_at_the_boundary_and_an_oversized_record_alone_is_left_out() -> None:
    newest_first = items([("reply", "ab"), ("input", "x" * 11), ("input", "é" * 4)])

    exact = select(newest_first, [], Limits(max_history_bytes=10))
    one_less = select(newest_first, [], Limits(max_history_bytes=9))

    assert [exchange.text for exchange in exact.history] == ["éééé", "ab"]
    assert exact.omitted_items == 1
    assert [exchange.text for exchange in one_less.history] == ["ab"]
    assert one_less.omitted_items == 2


@pytest.mark.rule("CM-39", "CM-73")
@given(history=histories, pairs=note_lists)
def test_a_snapshot_is_the_same_bytes_each_time_and_comes_back_equal(
    history: list[tuple[Any, str | None]], pairs: list[tuple[str, str]]
) -> None:
    snapshot = select(items(history), notes_of(pairs), Limits())

    stored = encode(snapshot)

    assert decode(stored, digest(stored)) == snapshot
    assert encode(decode(stored, digest(stored))) == stored
    assert len(digest(stored)) == 32


@pytest.mark.parametrize("stored", [b"", b"{}", b'{"version":"2"}', b"[]", b'{"version":1,"notes":1}'])
def test_bytes_that_are_no_snapshot_are_refused_as_such(stored: bytes) -> None:
    with pytest.raises(UnreadableSnapshot):
        decode(stored, digest(stored))


def test_a_snapshot_with_another_ones_digest_is_refused() -> None:
    with pytest.raises(UnreadableSnapshot, match="digest"):
        decode(encode(Snapshot()), digest(encode(Snapshot(omitted_items=1))))


def test_a_newer_version_is_told_from_damage() -> None:
    with pytest.raises(NewerSnapshot):
        decode(b'{"version":2}', digest(b'{"version":2}'))


def test_an_empty_past_is_an_empty_snapshot() -> None:
    assert select([], [], Limits()) == Snapshot()


@pytest.mark.rule("CM-42", "CM-47", "CM-48")
@pytest.mark.parametrize(
    ("limit", "maximum"),
    [
        ("max_items", 100),
        ("max_history_bytes", 131_072),
        ("max_notes_bytes", 32_768),
        ("max_item_bytes", 65_536),
        ("max_stored_items", 10_000),
    ],
)
def test_limits_are_positive_whole_numbers_up_to_their_maximum(limit: str, maximum: int) -> None:
    Limits(**{limit: 1})  # type: ignore[arg-type] # one limit by name
    Limits(**{limit: maximum})  # type: ignore[arg-type] # one limit by name

    for wrong in (0, -1, maximum + 1, 1.5, True, "20", None):
        with pytest.raises(InvalidLimit):
            Limits(**{limit: wrong})  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.rule("CM-45", "CM-46", "CM-48")
def test_the_defaults_are_the_documented_ones_and_retention_is_bounded() -> None:
    assert Limits() == Limits(20, 32_768, 8_192, 16_384, timedelta(days=30), 1_000)
    Limits(retention=timedelta(days=365))
    for wrong in (
        timedelta(0),
        timedelta(days=-1),
        timedelta(days=365, milliseconds=1),
        timedelta(microseconds=1),
        30,
    ):
        with pytest.raises(InvalidLimit, match=r"retention must be a timedelta .* at most 365 days"):
            Limits(retention=wrong)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.rule("CM-3")
def test_a_policy_is_required() -> None:
    with pytest.raises(MissingPolicy):
        Conversations(authorize=None)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.rule("CM-52")
@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("k", None),
        ("k" * 128, None),
        ("k" * 129, "key_too_long"),
        ("😀" * 64, None),
        ("😀" * 64 + "k", "key_too_long"),
        ("", "key_empty"),
        ("a\nb", "key_has_controls"),
        ("a\x00", "key_has_controls"),
        ("a\x9f", "key_has_controls"),
        ("a\ud800", "key_not_text"),
    ],
)
def test_note_keys_are_1_to_128_utf_16_units_without_controls(key: str, problem: str | None) -> None:
    assert key_problem(key) == problem


@pytest.mark.rule("CM-53")
def test_note_bodies_are_bounded_exactly_and_made_storable() -> None:
    at_the_bound = draft_note("k", "é" * (MAX_BODY_BYTES // 2), None)
    assert isinstance(at_the_bound, NoteDraft)
    assert at_the_bound.body_bytes == MAX_BODY_BYTES

    assert draft_note("k", "é" * (MAX_BODY_BYTES // 2) + "x", None) == "body_too_long"
    assert draft_note("k", "x", timedelta(0)) == "expiry_out_of_range"
    cleaned = draft_note("k", "a\x00b\\u0000", None)
    assert isinstance(cleaned, NoteDraft)
    assert cleaned.body == "a\ufffdb\\u0000"
