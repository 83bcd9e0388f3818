"""Which records of the past a run is shown: whole ones, the newest that fit, rendered oldest first.

A record that does not fit what is left of a bound is left out and counted, and older ones that fit are still taken: all
among the records that `store.read_history` looks at, which ends where `max_items` could be shown. What lies behind that
is not counted as left out.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from workers.memory.limits import Limits
from workers.memory.snapshot import Exchange, NoteEntry, Role, Snapshot

ItemKind = Literal["input", "reply"]


class HistoryItem(NamedTuple):
    """One stored item; `text` is None where there is nothing to recall (reply not sent, body not kept)."""

    item_id: int
    kind: ItemKind
    text: str | None
    body_bytes: int
    created_at: datetime


def select(history: Sequence[HistoryItem], notes: Sequence[NoteEntry], limits: Limits) -> Snapshot:
    """The snapshot of `history` (newest first) and `notes` (most recently updated first) within `limits`."""
    taken, omitted_items = _newest_exchanges(history, limits)
    kept, omitted_notes = _newest_notes(notes, limits)
    return Snapshot(kept, taken, omitted_items, omitted_notes)


def note_bytes(note: NoteEntry) -> int:
    """What a note counts for: the UTF-8 bytes of its key and its body."""
    return len(note.key.encode()) + len(note.body.encode())


def _newest_exchanges(history: Sequence[HistoryItem], limits: Limits) -> tuple[tuple[Exchange, ...], int]:
    chosen: list[Exchange] = []
    room = limits.max_history_bytes
    for item in history:
        if item.text is None or item.body_bytes > room or len(chosen) == limits.max_items:
            continue
        room -= item.body_bytes
        chosen.append(Exchange(_ROLES[item.kind], item.text))
    chosen.reverse()
    return tuple(chosen), len(history) - len(chosen)


def _newest_notes(notes: Sequence[NoteEntry], limits: Limits) -> tuple[tuple[NoteEntry, ...], int]:
    chosen: list[NoteEntry] = []
    room = limits.max_notes_bytes
    for note in notes:
        if (size := note_bytes(note)) <= room:
            room -= size
            chosen.append(note)
    return tuple(chosen), len(notes) - len(chosen)


_ROLES: dict[ItemKind, Role] = {"input": "user", "reply": "assistant"}
