"""The dead letter of a record: its key, its headers, and when its value is kept.

The key names where the record stood, so that a letter written twice is shown once. The value is the
original one, unless that was too large or absent: then only its hash stays.
"""

import re
from dataclasses import dataclass
from typing import Final

REASON_HEADER: Final = "parley-reason"
DETAIL_HEADER: Final = "parley-detail"
SHA256_HEADER: Final = "parley-sha256"
REFUSED_AT_HEADER: Final = "parley-refused-at"

_KEY = re.compile(rb"([A-Za-z0-9._-]{1,249}):([0-9]{1,10}):([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Where a record stands in Kafka; its text form is the dead letter's key."""

    topic: str
    partition: int
    offset: int

    def key(self) -> bytes:
        """`topic:partition:offset`."""
        return f"{self.topic}:{self.partition}:{self.offset}".encode("ascii")

    @classmethod
    def parse(cls, key: bytes) -> "RecordPosition | None":
        """The position in a dead letter's key, or None when it is not one."""
        match = _KEY.fullmatch(key)
        if match is None:
            return None
        topic, partition, offset = match.groups()
        return cls(topic.decode("ascii"), int(partition), int(offset))
