"""Refused records go to the dead letter topic at least once, with reason and position and without secrets.

The letter keeps the original value, byte for byte, unless it was too large or absent; the signature is left out, and
so is every header that the contract does not name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

import structlog

from schemas.dead_letter import (
    DETAIL_HEADER,
    REASON_HEADER,
    REFUSED_AT_HEADER,
    SHA256_HEADER,
    RecordPosition,
)
from schemas.event import MAX_EVENT_BYTES
from schemas.reason import Reason
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
        """Return once the broker acknowledged every letter; raises Transient where it does not."""
        if not refusals:
            return
        await self._producer.send_many(self._topic, [letter(refusal, now) for refusal in refusals])
        for refusal in refusals:
            self._metrics.dead_letters.labels(refusal.reason.value).inc()
            log.warning(
                "event.refused",
                reason=refusal.reason.value,
                detail=refusal.detail,
                position=refusal.record.position,
            )


def letter(refusal: Refusal, now: datetime) -> tuple[bytes, bytes | None, Headers]:
    """Key, value and headers of the dead letter of `refusal`."""
    record = refusal.record
    value = record.value or b""
    kept = None if not value or len(value) > MAX_EVENT_BYTES else value
    headers: Headers = [
        (REASON_HEADER, refusal.reason.value.encode()),
        (DETAIL_HEADER, refusal.detail.encode(errors="replace")),
        (SHA256_HEADER, sha256(value).hexdigest().encode()),
        (REFUSED_AT_HEADER, now.isoformat().encode()),
    ]
    headers += [
        (name, content)
        for name, content in record.headers
        if name in _KEPT_HEADERS and len(content) <= MAX_HEADER_BYTES
    ]
    return RecordPosition(record.topic, record.partition, record.offset).key(), kept, headers
