"""The transcript's SQL: read what may be recalled, record what was accepted, trim what has had its time.

Every method works inside the caller's transaction, in one statement for all lanes given, and never commits.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from workers.memory.limits import MAX_RETENTION, MAXIMA
from workers.memory.recall import HistoryItem
from workers.memory.snapshot import NoteEntry
from workers.postgres.rows import as_rows
from workers.postgres.sql import load


class InputItem(NamedTuple):
    """An accepted input; `body` is None when its `body_bytes` exceed the item limit and only metadata is kept."""

    lane_id: int
    generation: int
    run_id: UUID
    event_id: str
    body: str | None
    body_bytes: int


def input_item(
    lane_id: int, generation: int, run_id: UUID, event_id: str, text: str, max_item_bytes: int
) -> InputItem:
    """The item of an accepted text: whole, or without its body when it is larger than `max_item_bytes`."""
    size = len(text.encode())
    return InputItem(lane_id, generation, run_id, event_id, text if size <= max_item_bytes else None, size)


async def read_history(
    tx: Any,
    lane_ids: Sequence[int],
    generations: Sequence[int],
    event_ids: Sequence[str],
    max_items: int,
    retention: timedelta,
    max_bytes: int = MAXIMA["max_history_bytes"],
) -> dict[int, list[HistoryItem]]:
    """Items by lane, newest first: accepted inputs and sent replies with text, open replies without.

    `event_ids` are the events of the runs about to start, whose own items are left out.
    """
    history: dict[int, list[HistoryItem]] = {lane_id: [] for lane_id in lane_ids}
    rows = await tx.fetch(_READ_HISTORY, lane_ids, generations, event_ids, max_items, retention, max_bytes)
    for lane_id, item_id, kind, text, body_bytes, created_at in rows:
        history[lane_id].append(HistoryItem(item_id, kind, text, body_bytes, created_at))
    return history


async def read_notes(
    tx: Any, lane_ids: Sequence[int], generations: Sequence[int]
) -> dict[int, list[NoteEntry]]:
    """Live notes by lane, most recently updated first."""
    notes: dict[int, list[NoteEntry]] = {lane_id: [] for lane_id in lane_ids}
    for lane_id, key, body, updated_at in await tx.fetch(_READ_NOTES, lane_ids, generations):
        notes[lane_id].append(NoteEntry(key, body, updated_at))
    return notes


async def record_inputs(
    tx: Any, inputs: Sequence[InputItem], retention: timedelta = MAX_RETENTION
) -> set[int]:
    """Record each input once for its conversation, generation and event; the caller holds the lanes.

    Gives those lanes that hold an item older than `retention`.
    """
    rows = await tx.fetch(_RECORD_INPUTS, as_rows(InputItem._fields, inputs), retention)
    return {row["id"] for row in rows}


async def trim(
    tx: Any, lane_ids: Sequence[int], generations: Sequence[int], max_stored_items: int, retention: timedelta
) -> None:
    """Delete expired and surplus items, not those of an active turn; at most 500 a lane and call."""
    await tx.execute(_TRIM_ITEMS, lane_ids, generations, max_stored_items, retention)


_READ_HISTORY = load(__package__, "read_history")
_READ_NOTES = load(__package__, "read_recalled_notes")
_RECORD_INPUTS = load(__package__, "record_inputs")
_TRIM_ITEMS = load(__package__, "trim_items")
