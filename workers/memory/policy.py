"""What a note may be: the bounds of keys, bodies, counts and pages, decided from values alone.

A cursor is the last key of its page, marked with the scope it was given in: in another it is none. It opens
nothing by itself, since a list reads its own scope only, whatever the cursor says.
"""

import base64
import binascii
import unicodedata
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final, Literal

from schemas.text import clean

MAX_KEY_UNITS: Final = 128
MAX_BODY_BYTES: Final = 2_048
MAX_LIVE_NOTES: Final = 100
MAX_LISTED: Final = 50
MAX_EXPIRY: Final = timedelta(days=3650)

Problem = Literal[
    "key_empty",
    "key_too_long",
    "key_has_controls",
    "key_not_text",
    "body_too_long",
    "expiry_out_of_range",
]

_MARK_BYTES: Final = 9


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
    categories = {unicodedata.category(character) for character in key}
    if "Cc" in categories:
        return "key_has_controls"
    if "Cs" in categories:
        return "key_not_text"
    if len(key) + sum(character > "\uffff" for character in key) > MAX_KEY_UNITS:
        return "key_too_long"
    return None


def draft_note(key: str, text: str, expires_in: timedelta | None) -> NoteDraft | Problem:
    """The note to write, or why there is none; U+0000 and lone surrogates in `text` become U+FFFD, and count so."""
    if problem := key_problem(key):
        return problem
    body = clean(text)
    size = len(body.encode())
    if size > MAX_BODY_BYTES:
        return "body_too_long"
    if expires_in is not None and not timedelta(0) < expires_in <= MAX_EXPIRY:
        return "expiry_out_of_range"
    return NoteDraft(key, body, size, expires_in)


def cursor_after(key: str, lane_id: int, generation: int) -> str:
    """The cursor of a page that ends with `key`, good in this scope only."""
    written = _mark(key, lane_id, generation) + key.encode()
    return base64.urlsafe_b64encode(written).decode().rstrip("=")


def key_before(cursor: str, lane_id: int, generation: int) -> str | None:
    """The key that `cursor` goes on after, or None where it was not given in this scope."""
    try:
        written = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        key = written[_MARK_BYTES:].decode()
    except (binascii.Error, ValueError):
        return None
    is_ours = key_problem(key) is None and cursor == cursor_after(key, lane_id, generation)
    return key if is_ours else None


def _mark(key: str, lane_id: int, generation: int) -> bytes:
    return sha256(f"{lane_id}:{generation}:{key}".encode()).digest()[:_MARK_BYTES]
