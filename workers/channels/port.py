"""What a channel promises to the delivery loops: one send, closed outcomes, one declared capability.

A channel never raises from `send` or `look_up` for what its peer did; it names the outcome. What it cannot
name is `Uncertain` or `Unsure`, and the capability says what may be done about that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol
from uuid import UUID

from schemas.signing import SigningKey, VerifyKey

SizeUnit = Literal["utf16", "codepoint", "utf8"]
Scope = Literal["address", "account", "channel"]


class Capability(StrEnum):
    """What may be done about a send that may or may not have arrived."""

    IDEMPOTENT = "idempotent"
    """The peer recognizes a key for ever: the same key again."""
    IDEMPOTENT_WINDOW = "idempotent_window"
    """The peer recognizes a key for `window` after the first attempt."""
    LOOK_UP_DEFINITE = "look_up_definite"
    """The peer can be asked, and "not there" is proof once the settling time has passed."""
    LOOK_UP_POSITIVE = "look_up_positive"
    """The peer can be asked, and only "there" is proof."""
    NONE = "none"
    """Nobody can tell."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One attempt of one delivery; `key` is the same at every attempt, `first_sent_at` is database time."""

    delivery_id: UUID
    key: str
    channel: str
    account: str
    address: str
    text: str
    attempt: int
    first_sent_at: datetime
    traceparent: str | None = None
    possible_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """The peer has it."""

    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """The peer does not have it and may take it later; `rate_limited` waits do not use up the retries."""

    reason: str
    retry_after: timedelta | None = None
    scope: Scope = "address"
    rate_limited: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer certainly does not have it and never will."""

    reason: str


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The peer may have it."""

    reason: str


Outcome = Sent | NotSent | Refused | Uncertain


@dataclass(frozen=True, slots=True)
class Found:
    """The peer has it."""

    provider_id: str | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """The peer was asked and does not have it at this moment."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """The question itself failed: nothing is known that was not known before."""

    reason: str


LookUp = Found | Absent | Unsure


class KeySource(Protocol):
    """Where a channel's keys come from; read at each use, so that they rotate without a restart."""

    def verify_keys(self, channel: str) -> Sequence[VerifyKey]: ...

    def signing_keys(self, channel: str) -> Sequence[SigningKey]: ...


class Channel(Protocol):
    """A registered integration. `open()` comes before the first send, `close()` after the last."""

    @property
    def name(self) -> str: ...

    @property
    def capability(self) -> Capability: ...

    @property
    def window(self) -> timedelta | None:
        """How long a key is recognized; None unless the capability is IDEMPOTENT_WINDOW."""

    @property
    def settling_time(self) -> timedelta:
        """How long an accepted message may be missing from look-ups."""

    @property
    def transport_timeout(self) -> timedelta:
        """The longest one request takes, whatever the peer does."""

    @property
    def size_limit(self) -> int:
        """The longest text of one send, in `size_unit`."""

    @property
    def size_unit(self) -> SizeUnit: ...

    @property
    def keys(self) -> KeySource | None:
        """Keys that prove the channel's events; None for a channel that brings none."""

    def resends_unknown(self, account: str) -> bool:
        """Whether this account chose a possible duplicate over a possible loss (capability NONE only)."""

    def split(self, text: str) -> tuple[str, ...]:
        """The chunks of a reply, in order; joined they are the reply."""

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome: ...

    async def look_up(self, outgoing: Outgoing, timeout: timedelta) -> LookUp: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...
