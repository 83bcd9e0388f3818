"""One accepted thing a person did on a channel: the signed JSON value of a `channel.events` record, version
1.

Reading is tolerant: unknown fields are ignored, older major versions are upcast, newer ones are refused as
such. Writing is exact. The bytes an event came from stay beside it (`raw`) for audit; what a platform
itself posted rides inside them as `payload` (a JSON value) or `payload_base64` (any bytes, exact).
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
)

from schemas import jsonio
from schemas.identity import Id, Principal, escape, record_key
from schemas.reason import Reason, RefusedRecord
from schemas.text import clean
from schemas.upcast import CURRENT_VERSION, upcast

EVENT_TYPE: Final = "parley.event.v1"
MAX_EVENT_BYTES: Final = 900 * 1024
MAX_ATTACHMENTS: Final = 64
PAYLOAD_HASH_VERSION: Final = 1


class InvalidEvent(RefusedRecord):
    """The value is JSON, and not an event: `field` is the first wrong one, `problem` never quotes its
    content.
    """

    reason = Reason.INVALID_EVENT

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem


class TooLarge(RefusedRecord):
    """The value is longer than `MAX_EVENT_BYTES`: 413 at an adapter."""

    reason = Reason.TOO_LARGE

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


class UnsupportedVersion(RefusedRecord):
    """The value says a major version that this reader does not know."""

    reason = Reason.UNSUPPORTED_VERSION

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


def _written_time(value: object) -> object:
    if isinstance(value, datetime) or (isinstance(value, str) and value[4:5] == "-"):
        return value
    raise ValueError("must be an RFC 3339 time with an offset")


def _in_utc(moment: datetime) -> datetime:
    if not 1970 <= moment.year <= 9998:
        raise ValueError("must lie between 1970 and 9998")
    return moment.astimezone(UTC)


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None
    return text


Text = Annotated[str, BeforeValidator(lambda value: clean(value) if isinstance(value, str) else value)]
Kind = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z][a-z0-9_.]{0,63}$")]
Moment = Annotated[
    AwareDatetime, BeforeValidator(_written_time, json_schema_input_type=datetime), AfterValidator(_in_utc)
]
Link = Annotated[str, StringConstraints(strict=True, max_length=4096)]


class Attachment(BaseModel):
    """A file of the message: metadata and where the adapter can fetch it, never its bytes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Id
    name: Annotated[Text, Field(max_length=1024)] = ""
    media_type: Annotated[str, StringConstraints(strict=True, max_length=255)] = "application/octet-stream"
    size_bytes: Annotated[int, Field(strict=True, ge=0, lt=2**53)] | None = None
    url: Link | None = None
    handle: Link | None = None


class Event(BaseModel):
    """Event version 1. `audience` is `direct` or the name of a group audience, and has no default."""

    model_config = ConfigDict(frozen=True, extra="ignore", title=EVENT_TYPE)

    version: Annotated[int, Field(strict=True, ge=CURRENT_VERSION, le=CURRENT_VERSION)] = CURRENT_VERSION
    event_id: Id
    message_id: Id | None = None
    channel: Id
    account: Id
    chat: Id
    thread: Id | None = None
    audience: Id
    kind: Kind
    principal: Principal
    sender_name: Annotated[Text, Field(max_length=1024)] | None = None
    text: Text = ""
    attachments: Annotated[tuple[Attachment, ...], Field(max_length=MAX_ATTACHMENTS)] = ()
    reply_address: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=4096)] | None = None
    occurred_at: Moment
    payload: Any = None
    payload_base64: (
        Annotated[str, AfterValidator(_base64), Field(json_schema_extra={"contentEncoding": "base64"})] | None
    ) = None

    _raw: bytes = PrivateAttr(default=b"")

    @property
    def raw(self) -> bytes:
        """The exact value bytes this event was decoded from; empty for an event built here."""
        return self._raw

    @property
    def address(self) -> str:
        """Where a reply goes: `reply_address`, else the escaped chat, with `/` and the escaped thread if
        there is one.
        """
        if self.reply_address is not None:
            return self.reply_address
        return escape(self.chat) if self.thread is None else f"{escape(self.chat)}/{escape(self.thread)}"

    @property
    def record_key(self) -> bytes:
        """The Kafka key that keeps the events of one thread in order."""
        return record_key(self.channel, self.account, self.chat, self.thread)

    def original_bytes(self) -> bytes | None:
        """What the platform posted, byte for byte, when the adapter kept it."""
        return None if self.payload_base64 is None else base64.b64decode(self.payload_base64)

    def payload_hash(self) -> tuple[int, bytes]:
        """Version and SHA-256 of what the event says, to tell a redelivery from another payload under one id.

        Counted: message_id, channel, account, chat, thread, audience, kind, principal id and tenant, text,
        and each attachment's id, name, media type and size, in order. Not counted, since a platform or an
        adapter may change them between two deliveries of one event: occurred_at, sender_name, claims,
        reply_address, links, the payload, unknown fields. Text is compared as typed, without Unicode
        normalization.
        """
        meaning = {
            "account": self.account,
            "attachments": [[a.id, a.name, a.media_type, a.size_bytes] for a in self.attachments],
            "audience": self.audience,
            "channel": self.channel,
            "chat": self.chat,
            "kind": self.kind,
            "message_id": self.message_id,
            "principal": [self.principal.id, self.principal.tenant],
            "text": self.text,
            "thread": self.thread,
        }
        return PAYLOAD_HASH_VERSION, sha256(b"parley.payload.v1\n" + jsonio.dumps_sorted(meaning)).digest()

    def encode(self) -> bytes:
        """The value bytes to sign and publish: absent optional fields are left out."""
        return jsonio.dumps(self.model_dump(mode="json", exclude_none=True))

    @classmethod
    def from_document(cls, document: Mapping[str, Any], raw: bytes) -> Self:
        """The event in a parsed version 1 `document` that was read from `raw`. Raises InvalidEvent."""
        try:
            event = cls.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise InvalidEvent(".".join(map(str, first["loc"])), first["msg"]) from None
        event._raw = raw
        return event


def decode_event(value: bytes) -> Event:
    """The event in the value bytes of a record. Raises InvalidJson, InvalidEvent or UnsupportedVersion
    only.
    """
    return event_of(decode_document(value), value)


def decode_document(value: bytes) -> dict[str, Any]:
    """The JSON object in `value`, unproven and unvalidated. Raises InvalidJson."""
    document = jsonio.loads(value)
    if not isinstance(document, dict):
        raise jsonio.InvalidJson("not an object")
    return document


def event_of(document: dict[str, Any], raw: bytes) -> Event:
    """The event in `document`, upcast from older versions. Raises InvalidEvent or UnsupportedVersion."""
    version = document.get("version")
    if type(version) is not int:
        raise InvalidEvent("version", "must be an integer")
    if version == CURRENT_VERSION:
        return Event.from_document(document, raw)
    if 0 <= version < CURRENT_VERSION:
        return Event.from_document(upcast(document, version), raw)
    raise UnsupportedVersion(version)
