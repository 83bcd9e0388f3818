"""What a run is shown of the past: frozen before the first model step, the same bytes after every resume."""

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from schemas import jsonio
from schemas.errors import ParleyError

VERSION: Final = 1

Role = Literal["user", "assistant"]


class UnreadableSnapshot(ParleyError):
    """The stored bytes are no snapshot of a version this reader knows; `problem` quotes nothing of them."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class NewerSnapshot(UnreadableSnapshot):
    """The stored bytes are of a version that a newer reader knows."""


@dataclass(frozen=True, slots=True)
class NoteEntry:
    """One live note: `key`, `body`, and when it was last set."""

    key: str
    body: str
    updated_at: datetime


class Exchange(NamedTuple):
    """One transcript record: an accepted input (`user`) or a sent reply (`assistant`)."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Notes most recently updated first, history oldest first, and how many records of each were left out."""

    notes: tuple[NoteEntry, ...] = ()
    history: tuple[Exchange, ...] = ()
    omitted_items: int = 0
    omitted_notes: int = 0


def encode(snapshot: Snapshot) -> bytes:
    """The canonical bytes of `snapshot`: equal snapshots have equal bytes."""
    return jsonio.dumps_sorted(
        {
            "history": [[exchange.role, exchange.text] for exchange in snapshot.history],
            "notes": [[note.key, note.body, _written(note.updated_at)] for note in snapshot.notes],
            "omitted_items": snapshot.omitted_items,
            "omitted_notes": snapshot.omitted_notes,
            "version": VERSION,
        }
    )


def decode(stored: bytes, stored_digest: bytes) -> Snapshot:
    """The snapshot that `encode` wrote and `digest` marked. Raises UnreadableSnapshot, NewerSnapshot."""
    if digest(stored) != stored_digest:
        raise UnreadableSnapshot("its digest is another's")
    try:
        document = jsonio.loads(stored)
        if (version := document["version"]) > VERSION:
            raise NewerSnapshot(f"version {version}")
        return Snapshot(
            notes=tuple(
                NoteEntry(key, body, datetime.fromisoformat(updated_at))
                for key, body, updated_at in document["notes"]
            ),
            history=tuple(Exchange(role, text) for role, text in document["history"]),
            omitted_items=document["omitted_items"],
            omitted_notes=document["omitted_notes"],
        )
    except (jsonio.InvalidJson, KeyError, TypeError, ValueError) as error:
        raise UnreadableSnapshot(type(error).__name__) from None


def digest(stored: bytes) -> bytes:
    """32 bytes: SHA-256 of the encoded snapshot."""
    return sha256(stored).digest()


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
