"""What a note may be: the bounds of keys, bodies, counts and pages, decided from values alone."""

import unicodedata
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from schemas.text import clean

MAX_KEY_UNITS: Final = 128
MAX_BODY_BYTES: Final = 2_048
MAX_LIVE_NOTES: Final = 100
MAX_LISTED: Final = 50
MAX_EXPIRY: Final = timedelta(days=3650)

Problem = Literal[
    "key_empty", "key_too_long", "key_has_controls", "body_empty", "body_too_long", "expiry_out_of_range"
]


@dataclass(frozen=True, slots=True)
class NoteDraft:
    """A note that may be written: `body` is storable text of `body_bytes` UTF-8 bytes."""

    key: str
    body: str
    body_bytes: int
    expires_in: timedelta | None


def key_problem(key: str) -> Problem | None:
    """Why `key` is no note key, or None: 1 to 128 UTF-16 code units, no control characters, no lone surrogates."""
    if not key:
        return "key_empty"
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in key):
        return "key_has_controls"
    if len(key) + sum(character > "\uffff" for character in key) > MAX_KEY_UNITS:
        return "key_too_long"
    return None


def draft_note(key: str, text: str, expires_in: timedelta | None) -> NoteDraft | Problem:
    """The note to write, or why there is none; U+0000 and lone surrogates in `text` become U+FFFD."""
    if problem := key_problem(key):
        return problem
    body = clean(text)
    size = len(body.encode())
    if not body:
        return "body_empty"
    if size > MAX_BODY_BYTES:
        return "body_too_long"
    if expires_in is not None and not timedelta(0) < expires_in <= MAX_EXPIRY:
        return "expiry_out_of_range"
    return NoteDraft(key, body, size, expires_in)


TRIM_EVERY: Final = 16
FEW_ITEMS: Final = 100


def trims(turn: int, max_stored_items: int) -> bool:
    """Whether the `turn`-th turn of a conversation trims its transcript.

    Every turn where few items are kept; else one turn in 16, so that what 15 turns add may stand beyond the bound.
    """
    return max_stored_items <= FEW_ITEMS or turn % TRIM_EVERY == 0
