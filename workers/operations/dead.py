"""Dead letters: each record that was refused, shown once, and sent in again where that is safe.

A replay keeps the event's own id, so admission still recognizes an event that ran. It is signed anew, by the key that
the operator gives or by the channel's own, and the audit row stands before the record is sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from schemas.dead_letter import DETAIL_HEADER, REASON_HEADER, REFUSED_AT_HEADER, SHA256_HEADER, RecordPosition
from schemas.envelope import seal
from schemas.event import Event, decode_event
from schemas.reason import Reason, RefusedRecord
from schemas.signing import MAX_SIGNATURES, SigningKey
from workers.kafka.publish import Position, publish
from workers.kafka.reader import read_topic
from workers.kafka.record import Record
from workers.kafka.settings import KafkaSettings
from workers.operations import audit
from workers.operations.errors import ActRefused, NotFound
from workers.operations.policy import refuse_replay
from workers.postgres.database import Database

SigningKeysOf = Callable[[str], Sequence[SigningKey]]
"""The keys that may sign for a channel, by its name."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record; `key` is where it stood, `copies` how often its letter was written."""

    key: str
    reason: str
    detail: str
    event_id: str | None
    source: str | None
    refused_at: str
    sha256: str
    value_bytes: int
    copies: int
    value: bytes | None

    @property
    def known_reason(self) -> Reason | None:
        """The reason as this version knows it."""
        return next((reason for reason in Reason if reason.value == self.reason), None)


@dataclass(frozen=True, slots=True)
class Replayed:
    """An event that was sent in again."""

    key: str
    event_id: str
    channel: str
    key_ids: tuple[str, ...]
    position: Position


async def read_letters(settings: KafkaSettings) -> list[DeadLetter]:
    """Every dead letter that the topic still keeps, without values, each record once, in the order they came."""
    letters: dict[bytes, DeadLetter] = {}
    async for record in read_topic(settings, settings.dead_topic):
        key = _key_of(record)
        copies = letters[key].copies if key in letters else 0
        letters[key] = replace(_letter(record, copies + 1), value=None)
    return list(letters.values())


async def read_letter(settings: KafkaSettings, key: str) -> DeadLetter:
    """The letter of the record that stood at `key`, `topic:partition:offset`, with its value. Raises NotFound."""
    if RecordPosition.parse(key.encode()) is None:
        raise NotFound("dead letter", key, "a key is topic:partition:offset, as `parley dead list` shows it")
    found: DeadLetter | None = None
    async for record in read_topic(settings, settings.dead_topic):
        if _key_of(record) == key.encode():
            found = _letter(record, 1 if found is None else found.copies + 1)
    if found is None:
        raise NotFound("dead letter", key, "`parley dead list` shows what the topic still keeps")
    return found


async def replay(
    settings: KafkaSettings,
    database: Database,
    letter: DeadLetter,
    signing_keys: SigningKeysOf,
    actor: str,
    now: datetime,
) -> Replayed:
    """Sign the letter's event anew and publish it. Raises ActRefused, and what publishing raises."""
    event = _replayable_event(letter)
    keys = signing_keys(event.channel)[:MAX_SIGNATURES]
    if not keys:
        raise ActRefused(
            f"{letter.key} cannot be replayed",
            f"there is no signing key for channel {event.channel}",
            "give --key-file with a whsec_ or whsk_ key of that channel, or --app with the channel in it",
        )
    sealed = seal(event, keys, now)
    detail = {
        "event_id": event.event_id,
        "channel": event.channel,
        "account": event.account,
        "reason": letter.reason,
        "key_ids": [key.id for key in keys],
    }
    async with database.transaction() as tx:
        await audit.record(tx, actor, "dead.replay", letter.key, detail)
    position = await publish(settings, settings.events_topic, sealed.key, sealed.value, sealed.headers)
    return Replayed(letter.key, event.event_id, event.channel, tuple(key.id for key in keys), position)


def _replayable_event(letter: DeadLetter) -> Event:
    refusal = refuse_replay(letter.known_reason, letter.value is not None)
    if refusal is not None:
        raise ActRefused(f"{letter.key} cannot be replayed", *refusal)
    assert letter.value is not None
    try:
        return decode_event(letter.value)
    except RefusedRecord as error:
        raise ActRefused(
            f"{letter.key} cannot be replayed",
            f"this version cannot read its value ({error.reason.value}: {error.detail})",
            "use a version that can, or let its adapter send the event again",
        ) from error


def _key_of(record: Record) -> bytes:
    return record.key or record.position.encode()


def _letter(record: Record, copies: int) -> DeadLetter:
    headers = {name: content.decode(errors="replace") for name, content in record.headers}
    return DeadLetter(
        key=_key_of(record).decode(errors="replace"),
        reason=headers.get(REASON_HEADER, ""),
        detail=headers.get(DETAIL_HEADER, ""),
        event_id=headers.get("ce_id"),
        source=headers.get("ce_source"),
        refused_at=headers.get(REFUSED_AT_HEADER, ""),
        sha256=headers.get(SHA256_HEADER, ""),
        value_bytes=len(record.value or b""),
        copies=copies,
        value=record.value or None,
    )
