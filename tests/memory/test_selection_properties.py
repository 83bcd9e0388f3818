"""What is chosen of the past, against a model: in pure code for any history, and through SQL for a busy database."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory.desk import MemoryDesk
from workers.memory import store
from workers.memory.limits import MAXIMA, Conversations, InvalidLimit, Limits
from workers.memory.recall import HistoryItem, note_bytes, select
from workers.memory.snapshot import Exchange, NoteEntry

NOW = datetime(2031, 3, 10, 23, 30, tzinfo=UTC)
MONTH = timedelta(days=30)
STATUSES = {
    "accepted": "input",
    "withheld": "input",
    "sent": "reply",
    "pending": "reply",
    "unknown": "reply",
    "failed": "reply",
}
RECALLED = ("accepted", "sent")
COUNTED = ("accepted", "sent", "pending", "unknown")

kinds: st.SearchStrategy[Literal["input", "reply"]] = st.sampled_from(["input", "reply"])
texts = st.text("ab é\u20ac😀\n", max_size=9)
records = st.builds(
    lambda kind, text, size: HistoryItem(0, kind, text, size if text is None else len(text.encode()), NOW),
    kinds,
    st.one_of(texts, st.none()),
    st.integers(1, 99),
)
histories = st.lists(records, max_size=14)
notes = st.lists(st.builds(NoteEntry, texts.filter(bool), texts, st.just(NOW)), max_size=9)
bounds = st.builds(
    Limits,
    max_items=st.integers(1, 7),
    max_history_bytes=st.integers(1, 70),
    max_notes_bytes=st.integers(1, 70),
)


def shown(history: list[HistoryItem]) -> list[Exchange]:
    """All of `history` that has a text, oldest first."""
    return [
        Exchange("user" if item.kind == "input" else "assistant", item.text)
        for item in reversed(history)
        if item.text is not None
    ]


@pytest.mark.rule("CM-42", "CM-43", "CM-50")
@given(history=histories, more=st.integers(0, 3))
def test_a_past_that_fits_both_bounds_exactly_is_shown_whole_and_one_less_of_either_leaves_out(
    history: list[HistoryItem], more: int
) -> None:
    recallable = shown(history)
    size = sum(len(exchange.text.encode()) for exchange in recallable)
    items, room = max(1, len(recallable)), max(1, size)

    whole = select(history, [], Limits(max_items=items + more, max_history_bytes=room + more))
    assert list(whole.history) == recallable
    assert whole.omitted_items == len(history) - len(recallable)

    if items > 1:
        fewer = select(history, [], Limits(max_items=items - 1, max_history_bytes=room))
        assert list(fewer.history) == recallable[1:], "the oldest is the one that is left out"
        assert fewer.omitted_items == whole.omitted_items + 1
    if size > 1:
        smaller = select(history, [], Limits(max_items=items, max_history_bytes=room - 1))
        assert smaller.omitted_items > whole.omitted_items
        assert sum(len(exchange.text.encode()) for exchange in smaller.history) <= room - 1


@pytest.mark.rule("CM-50", "CM-80")
@given(history=histories, older=histories, limits=bounds)
def test_an_older_record_never_changes_the_choice_among_newer_ones(
    history: list[HistoryItem], older: list[HistoryItem], limits: Limits
) -> None:
    alone = select(history, [], limits)
    together = select([*history, *older], [], limits)

    chosen = len(alone.history)
    assert together.history[len(together.history) - chosen :] == alone.history
    assert len(together.history) + together.omitted_items == len(history) + len(older)


@pytest.mark.rule("CM-50")
@given(history=histories, limits=bounds, oversized=st.integers(0, 14))
def test_an_oversized_record_anywhere_is_only_counted(
    history: list[HistoryItem], limits: Limits, oversized: int
) -> None:
    text = "x" * (limits.max_history_bytes + 1)
    too_large = HistoryItem(0, "input", text, len(text), NOW)
    at = min(oversized, len(history))

    without = select(history, [], limits)
    with_it = select([*history[:at], too_large, *history[at:]], [], limits)

    assert with_it.history == without.history
    assert with_it.omitted_items == without.omitted_items + 1


@pytest.mark.rule("CM-44", "CM-78", "CM-49")
@given(entries=notes, more=notes, limits=bounds)
def test_notes_are_whole_within_their_bytes_and_an_older_one_never_displaces_a_newer(
    entries: list[NoteEntry], more: list[NoteEntry], limits: Limits
) -> None:
    alone = select([], entries, limits)
    together = select([], [*entries, *more], limits)

    assert sum(len(f"{note.key}{note.body}".encode()) for note in together.notes) <= limits.max_notes_bytes
    assert together.notes[: len(alone.notes)] == alone.notes
    assert len(together.notes) + together.omitted_notes == len(entries) + len(more)
    if size := sum(map(note_bytes, entries)):
        assert select([], entries, Limits(max_notes_bytes=size)).notes == tuple(entries)


@pytest.mark.rule("CM-49", "CM-45")
@given(text=texts.filter(bool))
def test_what_counts_are_the_bytes_of_utf_8_and_not_its_characters(text: str) -> None:
    size = len(text.encode("utf-8"))
    run_id: Any = None

    at_the_bound = store.input_item(1, 0, run_id, "e", text, size)
    assert (at_the_bound.body, at_the_bound.body_bytes) == (text, size)
    over = store.input_item(1, 0, run_id, "e", text + "x", size)
    assert (over.body, over.body_bytes) == (None, size + 1)


@pytest.mark.rule("CM-48")
@given(
    limit=st.sampled_from(sorted(MAXIMA)),
    value=st.one_of(
        st.integers(max_value=0),
        st.integers(min_value=MAXIMA["max_history_bytes"] + 1),
        st.booleans(),
        st.floats(),
        st.text(),
        st.none(),
    ),
)
def test_no_other_kind_of_limit_makes_an_app(limit: str, value: Any) -> None:
    async def authorize(_: Any) -> Any:
        """Never asked."""

    with pytest.raises(InvalidLimit) as refused:
        Conversations(authorize, Limits(**{limit: value}))
    assert limit in str(refused.value)
    assert str(MAXIMA[limit]) in str(refused.value)


@pytest.mark.rule("CM-42")
@pytest.mark.parametrize("seed", range(4))
async def test_what_the_database_gives_is_the_model_of_two_conversations_told_apart(
    desk: MemoryDesk, seed: int
) -> None:
    chance = random.Random(seed)
    lanes = [(await desk.a_lane()).lane_id for _ in range(2)]
    told: dict[int, list[tuple[str, str]]] = {lane: [] for lane in lanes}
    for number in range(chance.randint(20, 60)):
        lane, status = chance.choice(lanes), chance.choice([*STATUSES, "accepted", "sent"])
        text = f"{number}" + "é" * chance.choice([0, 1, 3, 9])
        await desk.an_item(lane, text, kind=STATUSES[status], status=status)
        told[lane].insert(0, (status, text))
    for max_items, max_bytes in [(1, 1), (2, 9), (5, 20), (5, 1000), (20, 60), (100, 131_072)]:
        limits = Limits(max_items=max_items, max_history_bytes=max_bytes)
        async with desk.db.transaction() as tx:
            read = await store.read_history(tx, lanes, [0, 0], ["", ""], max_items, MONTH, max_bytes)
        for lane in lanes:
            async with desk.db.transaction() as tx:
                alone = await store.read_history(tx, [lane], [0], [""], max_items, MONTH, max_bytes)
            assert read[lane] == alone[lane], "the other conversation changes nothing"
            seen = window(told[lane], max_items, max_bytes)
            snapshot = select(read[lane], [], limits)
            assert snapshot == select(seen, [], limits)
            assert snapshot.omitted_items == len(seen) - len(snapshot.history)
            everything = [item for item in whole(told[lane]) if len(told[lane]) <= max_items]
            if everything:
                assert snapshot == select(everything, [], limits), "no window cuts a short conversation"


def whole(told: list[tuple[str, str]]) -> list[HistoryItem]:
    """Newest first, what recall may show or count, with the text of what may be shown."""
    return [
        HistoryItem(
            0, "input" if status == "accepted" else "reply", text if status in RECALLED else None,
            len(text.encode()), NOW,
        )
        for status, text in told
        if status in COUNTED
    ]  # fmt: skip


def window(told: list[tuple[str, str]], max_items: int, max_bytes: int) -> list[HistoryItem]:
    """What of it is looked at: to the last of `max_items` that could be shown, and what stands right behind that."""
    seen: list[HistoryItem] = []
    recallable = 0
    for item in whole(told)[: 4 * max_items]:
        fits = item.text is not None and item.body_bytes <= max_bytes
        recallable += fits
        if recallable > max_items:
            break
        seen.append(item if fits else item._replace(text=None))
    return seen
