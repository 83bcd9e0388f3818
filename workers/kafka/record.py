"""One Kafka record as the rest of the project sees it: raw bytes, and where they stood."""

from collections.abc import Iterable
from dataclasses import dataclass, field

Headers = list[tuple[str, bytes]]
_FRAME_BYTES = 100


class Tenure:
    """The time in which a member holds its partitions: from an assignment to the next rebalance."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


_FOR_EVER = Tenure()


# Made for every event: a frozen one costs three times as much to make.
@dataclass(slots=True)
class Record:
    """`timestamp` is in seconds since 1970 (the broker's or the producer's, as the topic says)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: float
    generation: int = field(default=0, repr=False)
    """Group generation that delivered the record: an ack of an older one is ignored."""
    tenure: Tenure = field(default=_FOR_EVER, repr=False, compare=False)

    @property
    def revoked(self) -> bool:
        """Its partition was taken away since: whoever has it now reads the record again."""
        return self.tenure.ended

    @property
    def position(self) -> str:
        """`topic:partition:offset`, the key of a dead letter."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, with a flat allowance for the rest."""
        return payload_bytes(self.key, self.value, self.headers)


def payload_bytes(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """What a record weighs against a byte bound; Kafka allows headers without a value."""
    carried = sum(len(name) + len(content or b"") for name, content in headers)
    return _FRAME_BYTES + len(key or b"") + len(value or b"") + carried
