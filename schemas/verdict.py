"""Whether a `channel.events` record may be believed, decided from its bytes, the registered keys and the
time.

Order: size, JSON, the channel that the value names, the signature by one of that channel's keys, version
and fields, envelope, age. Until the signature holds, the value only chooses which keys to try. Every
refusal is a `RefusedRecord` with a `reason` from the closed list; nothing else is ever raised, whatever the
record holds.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from schemas.envelope import Envelope, check_envelope, read_headers
from schemas.event import MAX_EVENT_BYTES, Event, TooLarge, decode_document, event_of
from schemas.reason import Reason, RefusedRecord
from schemas.signing import VerifyKey, signed_at, verify

MAX_CLOCK_AHEAD: Final = timedelta(minutes=15)
"""How far an adapter's clock may run ahead before its events are refused as `too_new`."""

KeyRegistry = Callable[[str], Sequence[VerifyKey] | None]
"""The keys of a channel by its name; None or nothing for a channel that is not registered."""


class Undecodable(RefusedRecord):
    """The record has no value."""

    reason = Reason.UNDECODABLE


class Unauthenticated(RefusedRecord):
    """No registered key of the named channel and account made this signature; `channel` is unproven."""

    reason = Reason.UNAUTHENTICATED

    def __init__(self, channel: str) -> None:
        super().__init__(channel)
        self.channel = channel


class TooOld(RefusedRecord):
    """Signed longer ago than the event age limit."""

    reason = Reason.TOO_OLD

    def __init__(self, age: timedelta) -> None:
        super().__init__(age)
        self.age = age


class TooNew(RefusedRecord):
    """Signed further in the future than `MAX_CLOCK_AHEAD`."""

    reason = Reason.TOO_NEW

    def __init__(self, ahead: timedelta) -> None:
        super().__init__(ahead)
        self.ahead = ahead


class VerifiedEvent(NamedTuple):
    """An event whose channel, account, kind and principal are proven; `key_id` names the key that proved
    them.
    """

    event: Event
    key_id: str
    signed_at: datetime
    traceparent: str | None


def verify_record(
    headers: Iterable[tuple[str, bytes | None]] | None,
    key: bytes | None,
    value: bytes | None,
    registry: KeyRegistry,
    now: datetime,
    max_age: timedelta,
) -> VerifiedEvent:
    """The proven event of a record, or one RefusedRecord leaf with its `reason`."""
    if not value:
        raise Undecodable
    if len(value) > MAX_EVENT_BYTES:
        raise TooLarge(len(value))
    envelope = read_headers(headers)
    document = decode_document(value)
    proof = _prove(document, envelope, value, registry, now)
    event = event_of(document, value)
    if proof.channel != event.channel or proof.account not in (None, event.account):
        raise Unauthenticated(event.channel)
    check_envelope(envelope, key, event, document["version"])
    moment = _check_age(envelope, now, max_age)
    return VerifiedEvent(event, proof.id, moment, envelope.trace)


def _prove(
    document: dict[str, Any], envelope: Envelope, value: bytes, registry: KeyRegistry, now: datetime
) -> VerifyKey:
    channel = document.get("channel")
    if not isinstance(channel, str):
        raise Unauthenticated("")
    keys = [key for key in registry(channel) or () if key.channel == channel]
    proof = verify(
        keys,
        envelope.webhook_id,
        envelope.webhook_timestamp,
        envelope.webhook_signature,
        value,
        now,
        tolerance=None,
    )
    if proof is None:
        raise Unauthenticated(channel)
    return proof


def _check_age(envelope: Envelope, now: datetime, max_age: timedelta) -> datetime:
    moment = datetime.fromtimestamp(signed_at(envelope.webhook_timestamp) or 0, UTC)
    if now - moment > max_age:
        raise TooOld(now - moment)
    if moment - now > MAX_CLOCK_AHEAD:
        raise TooNew(moment - now)
    return moment
