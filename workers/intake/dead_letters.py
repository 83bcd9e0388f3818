"""Refused records go to the dead letter topic at least once, with reason and position and without secrets.

The letter keeps the original value, byte for byte, unless it was too large or absent; the signature is left out, and
so is every header that the contract does not name. Of a record that was too large only hash and position stay.

A broker that is away is waited for: until the letter is acknowledged its record is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from schemas.dead_letter import (
    DETAIL_HEADER,
    REASON_HEADER,
    REFUSED_AT_HEADER,
    SHA256_HEADER,
    RecordPosition,
)
from schemas.event import MAX_EVENT_BYTES
from schemas.reason import Reason
from workers.kafka.errors import BrokerAway, RecordTooLarge
from workers.kafka.producer import RecordProducer
from workers.kafka.record import Headers, Record
from workers.telemetry.metrics import Metrics

MAX_HEADER_BYTES: Final = 1024
_KEPT_HEADERS: Final = frozenset(
    {
        "ce_specversion",
        "ce_id",
        "ce_source",
        "ce_type",
        "ce_time",
        "content-type",
        "traceparent",
        "webhook-id",
        "webhook-timestamp",
    }
)

Letter = tuple[bytes | None, bytes | None, Headers]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One record that is not admitted, and why; `detail` names fields, never content."""

    record: Record
    reason: Reason
    detail: str = ""


class DeadLetters:
    """Writes refusals to the dead letter topic."""

    def __init__(self, producer: RecordProducer, topic: str, metrics: Metrics) -> None:
        self._producer = producer
        self._topic = topic
        self._metrics = metrics

    async def bury(self, refusals: Sequence[Refusal], now: datetime) -> None:
        """Return once the broker acknowledged every letter, however long it was away."""
        if not refusals:
            return
        await self._send([letter(refusal, now) for refusal in refusals])
        for refusal in refusals:
            self._metrics.dead_letters.labels(refusal.reason.value).inc()
            log.warning(
                "event.refused",
                reason=refusal.reason.value,
                detail=refusal.detail,
                position=refusal.record.position,
            )

    async def _send(self, letters: Sequence[Letter]) -> None:
        try:
            await self._send_when_possible(letters)
        except RecordTooLarge:
            # The broker's own bound may lie below ours; a letter that it does not take goes without its value.
            if len(letters) == 1:
                await self._send_when_possible([_without_value(each) for each in letters])
                return
            for each in letters:
                await self._send([each])

    async def _send_when_possible(self, letters: Sequence[Letter]) -> None:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(BrokerAway),
            wait=wait_random_exponential(multiplier=0.05, max=5),
            before_sleep=lambda _: log.warning("dead_letters.waiting", letters=len(letters)),
        ):
            with attempt:
                await self._producer.send_many(self._topic, letters)


def letter(refusal: Refusal, now: datetime) -> Letter:
    """Key, value and headers of the dead letter of `refusal`."""
    record = refusal.record
    value = record.value or b""
    too_large = len(value) > MAX_EVENT_BYTES
    headers: Headers = [
        (REASON_HEADER, refusal.reason.value.encode()),
        (DETAIL_HEADER, refusal.detail.encode(errors="replace")),
        (SHA256_HEADER, sha256(value).hexdigest().encode()),
        (REFUSED_AT_HEADER, now.isoformat().encode()),
    ]
    if not too_large:
        headers += _kept(record.headers)
    position = RecordPosition(record.topic, record.partition, record.offset)
    return position.key(), value if value and not too_large else None, headers


def _kept(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """The first of each header that the contract names, signatures apart."""
    kept: dict[str, bytes] = {}
    for name, content in headers:
        if name in _KEPT_HEADERS and content is not None and len(content) <= MAX_HEADER_BYTES:
            kept.setdefault(name, content)
    return list(kept.items())


def _without_value(letter: Letter) -> Letter:
    key, _, headers = letter
    return key, None, [(name, content) for name, content in headers if name not in _KEPT_HEADERS]
