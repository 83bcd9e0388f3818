"""Acknowledged records leave in order: an offset is released once every earlier one was acknowledged.

faust's own bookkeeping commits past the record at the committed offset when the next one is acknowledged
first (docs/faust.md shows it), so faust hears of an offset only from here, contiguous and in order. A
partition starts anew with every group generation; acks of an older one are ignored, those records come again.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Taken(Generic[T]):
    token: T
    record_bytes: int
    acked: bool = False


@dataclass(slots=True)
class _Partition(Generic[T]):
    generation: int
    newest: int = -1
    order: deque[int] = field(default_factory=deque)
    taken: dict[int, _Taken[T]] = field(default_factory=dict)


class Ledger(Generic[T]):
    """What was handed out and not yet released; `token` is whatever the caller needs to release it."""

    def __init__(self) -> None:
        self._partitions: dict[int, _Partition[T]] = {}
        self.records = 0
        """Handed out and not released: un-acknowledged, or acknowledged behind a gap."""
        self.unacked_bytes = 0

    def take(self, partition: int, generation: int, offset: int, token: T, record_bytes: int) -> None:
        """Note a record as handed out; one that does not come behind the last begins its partition anew."""
        book = self._partitions.get(partition)
        if book is None or book.generation != generation or offset <= book.newest:
            self.forget(partition)
            book = self._partitions[partition] = _Partition(generation)
        book.newest = offset
        book.order.append(offset)
        book.taken[offset] = _Taken(token, record_bytes)
        self.records += 1
        self.unacked_bytes += record_bytes

    def ack(self, partition: int, generation: int, offset: int) -> list[T]:
        """The tokens that became releasable, in order; none for a repeat, an unknown record or an old one."""
        book = self._partitions.get(partition)
        if book is None or book.generation != generation:
            return []
        taken = book.taken.get(offset)
        if taken is None or taken.acked:
            return []
        taken.acked = True
        self.unacked_bytes -= taken.record_bytes
        released: list[T] = []
        while book.order and book.taken[book.order[0]].acked:
            released.append(book.taken.pop(book.order.popleft()).token)
        self.records -= len(released)
        return released

    def forget(self, partition: int) -> None:
        """Drop a partition that was revoked."""
        book = self._partitions.pop(partition, None)
        if book is not None:
            self.records -= len(book.order)
            self.unacked_bytes -= sum(t.record_bytes for t in book.taken.values() if not t.acked)

    def clear(self) -> None:
        """Drop everything: all partitions were revoked."""
        for partition in list(self._partitions):
            self.forget(partition)

    def oldest(self, partition: int) -> int | None:
        """The offset that holds the partition's commit back, or None when nothing is outstanding."""
        book = self._partitions.get(partition)
        return book.order[0] if book is not None and book.order else None
