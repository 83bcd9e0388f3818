"""The envelope of an event on Kafka: CloudEvents 1.0 in binary mode, with Standard Webhooks signature
headers.

The signed value is the truth; headers and key only repeat it for routing and tools, and must agree with
it. The `webhook-id` is the event id percent-escaped with `.` escaped too, because a dot would blur what
was signed. Unknown headers are ignored. `traceparent` is not signed and decides nothing.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from schemas.event import EVENT_TYPE, MAX_EVENT_BYTES, Event, TooLarge
from schemas.identity import escape
from schemas.reason import Reason, RefusedRecord
from schemas.signing import SigningKey, sign

SPEC_VERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/json"

_NAMES: Final = {
    "ce_specversion": "specversion",
    "ce_id": "id",
    "ce_source": "source",
    "ce_type": "type",
    "ce_time": "time",
    "content-type": "content_type",
    "traceparent": "traceparent",
    "webhook-id": "webhook_id",
    "webhook-timestamp": "webhook_timestamp",
    "webhook-signature": "webhook_signature",
}
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_JSON_TYPE = re.compile(rb"application/json(?:\s*;\s*charset=\"?utf-8\"?)?", re.IGNORECASE)


class EnvelopeMismatch(RefusedRecord):
    """A header or the record key is missing, repeated, or disagrees with the signed value; `field` names
    it, or says `header name` where one is no UTF-8.
    """

    reason = Reason.ENVELOPE_MISMATCH

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


class Envelope(NamedTuple):
    """The headers this contract knows, each at most once; None for one that is absent or null."""

    specversion: bytes | None = None
    id: bytes | None = None
    source: bytes | None = None
    type: bytes | None = None
    time: bytes | None = None
    content_type: bytes | None = None
    traceparent: bytes | None = None
    webhook_id: bytes | None = None
    webhook_timestamp: bytes | None = None
    webhook_signature: bytes | None = None
    repeated: str | None = None
    misnamed: bool = False
    """A header, known or not, has a name that is no UTF-8 (read with surrogates)."""

    @property
    def trace(self) -> str | None:
        """The W3C trace parent, when it is well formed."""
        if self.traceparent is None or not _TRACEPARENT.fullmatch(self.traceparent):
            return None
        return self.traceparent.decode("ascii")


@dataclass(frozen=True, slots=True)
class SealedEvent:
    """A record ready to be produced to `channel.events`."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def webhook_id(event_id: str) -> str:
    """The `webhook-id` of an event: its id percent-escaped, `.` as `%2E`."""
    return escape(event_id).replace(".", "%2E")


@lru_cache(maxsize=1024)
def source(channel: str, account: str) -> str:
    """The `ce_source` of a channel's account."""
    return f"/channels/{escape(channel)}/{escape(account)}"


def to_headers(
    event: Event, timestamp: int, signature: str, traceparent: str | None = None
) -> list[tuple[str, bytes]]:
    """The record headers of `event`, signed at `timestamp` (epoch seconds) with `signature` over its value
    bytes.
    """
    headers = [
        ("ce_specversion", SPEC_VERSION),
        ("ce_id", event.event_id),
        ("ce_source", source(event.channel, event.account)),
        ("ce_type", EVENT_TYPE),
        ("ce_time", event.occurred_at.isoformat().replace("+00:00", "Z")),
        ("content-type", CONTENT_TYPE),
        ("webhook-id", webhook_id(event.event_id)),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signature),
    ]
    if traceparent is not None:
        headers.append(("traceparent", traceparent))
    return [(name, text.encode()) for name, text in headers]


def seal(
    event: Event, keys: Sequence[SigningKey], now: datetime, traceparent: str | None = None
) -> SealedEvent:
    """`event` encoded, signed by every one of `keys` at `now`, and wrapped for Kafka. Raises TooLarge."""
    value, timestamp = event.encode(), int(now.timestamp())
    if len(value) > MAX_EVENT_BYTES:
        raise TooLarge(len(value))
    signature = sign(keys, webhook_id(event.event_id), timestamp, value)
    return SealedEvent(event.record_key, value, to_headers(event, timestamp, signature, traceparent))


def read_headers(headers: Iterable[tuple[str, bytes | None]] | None) -> Envelope:
    """The known headers of a record; one that comes twice is absent, and `repeated` names it."""
    found: dict[str, bytes | None] = {}
    repeated, misnamed = None, False
    for name, content in headers or ():
        known = _NAMES.get(name)
        if known is None:
            misnamed = misnamed or not (name.isascii() or _is_utf8(name))
            continue
        if known in found:
            content = None
            repeated = repeated if name == "traceparent" else name
        found[known] = content
    return Envelope(**found, repeated=repeated, misnamed=misnamed)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_envelope(envelope: Envelope, key: bytes | None, event: Event, version: int = 1) -> None:
    """Raise EnvelopeMismatch unless headers and `key` say what `event` says; `version` is the one in its
    value.
    """
    if envelope.repeated is not None:
        raise EnvelopeMismatch(envelope.repeated)
    if envelope.misnamed:
        raise EnvelopeMismatch("header name")
    expected = (
        ("ce_specversion", envelope.specversion, SPEC_VERSION),
        ("ce_id", envelope.id, event.event_id),
        ("ce_source", envelope.source, source(event.channel, event.account)),
        ("ce_type", envelope.type, f"parley.event.v{version}"),
        ("webhook-id", envelope.webhook_id, webhook_id(event.event_id)),
    )
    for name, actual, wanted in expected:
        if actual != wanted.encode():
            raise EnvelopeMismatch(name)
    if _moment(envelope.time) != event.occurred_at:
        raise EnvelopeMismatch("ce_time")
    if envelope.content_type is None or not _JSON_TYPE.fullmatch(envelope.content_type):
        raise EnvelopeMismatch("content-type")
    if key != event.record_key:
        raise EnvelopeMismatch("key")


def _moment(text: bytes | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat((text or b"").decode("ascii"))
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment
