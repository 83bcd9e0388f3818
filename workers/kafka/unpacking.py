"""What a writer spoiled costs its own record and never the partition; what Kafka spoiled holds its partition, loudly.

    a header name that is no UTF-8   -> the record, its name with surrogates (what `schemas.envelope` refuses)
    a record that breaks the format  -> a record without key, value and headers in its place; the rest of its batch is
                                        passed over and counted as lost
    a wrong checksum, a codec that this process lacks -> `Damaged` is told, and the position stays where it is

aiokafka's own parser raises in all these cases, each time the partition is read again. It goes first here as well: only
a batch that it refuses is read again by this one.
"""

import logging
import struct
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecord, _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint
from aiokafka.structs import TopicPartition

log = logging.getLogger(__name__)

NO_NAME: Final = "\udcff"
"""Stands for a header name that is null."""

Damaged = Callable[[TopicPartition, int, str], None]
"""Told the partition, the offset from which it cannot be read, and why."""

_LENGTH = struct.Struct(">qi")
_NEWEST_FORMAT: Final = 2


class Fetched:
    """Batches of one fetch together with their bytes; stands where aiokafka expects its `MemoryRecords`."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._batches = MemoryRecords(raw)
        self._start = self._end = 0

    def size_in_bytes(self) -> int:
        return len(self._raw)

    def has_next(self) -> bool:
        return bool(self._batches.has_next())

    def next_batch(self) -> Any:
        self._start = self._end
        _, length = _LENGTH.unpack_from(self._raw, self._start)
        self._end = self._start + _LENGTH.size + length
        return self._batches.next_batch()

    def bytes_of_batch(self) -> bytes:
        """The bytes of the batch that was given last."""
        return self._raw[self._start : self._end]


class TolerantRecords(PartitionRecords):  # type: ignore[misc]
    """aiokafka's reader of one fetched partition, at the isolation level `read_uncommitted`."""

    next_fetch_offset: int

    def __init__(self, damaged: Damaged, *arguments: Any) -> None:
        self._damaged = damaged
        super().__init__(*arguments)

    def _unpack_records(self) -> Iterator[Any]:
        began = self.next_fetch_offset
        problem = "the broker answers with records below it only"
        while self._records.has_next():
            try:
                batch = self._records.next_batch()
                if not batch.validate_crc():
                    raise CorruptRecordException("the checksum does not match")
                records = () if batch.is_control_batch else self._records_of(batch)
            except (CorruptRecordException, UnsupportedCodecError) as error:
                problem = str(error)
                break
            for record in records:
                if self.next_fetch_offset <= record.offset < batch.next_offset:
                    self.next_fetch_offset = record.offset + 1
                    yield self._consumer_record(self._tp, record)
            self.next_fetch_offset = max(self.next_fetch_offset, batch.next_offset)
        if self.next_fetch_offset == began:
            self._damaged(self._tp, began, problem)

    def _records_of(self, batch: Any) -> list[Any]:
        try:
            return list(batch)
        except UnsupportedCodecError:
            raise
        except Exception as refused:
            records, left_out = salvage(self._records.bytes_of_batch(), batch.next_offset)
            log.error(
                "%s holds a malformed batch below offset %d (%s): %d records read, %d of them as empty ones",
                self._tp,
                batch.next_offset,
                type(refused).__name__,
                len(records),
                left_out,
            )
            return records


def salvage(raw: bytes, next_offset: int) -> tuple[list[Any], int]:
    """Records of a batch that ends before `next_offset`, as far as they can be read, and how many stand in for others.

    From the first that cannot be read on there is one without key, value and headers.
    """
    batch = _LenientBatch(raw)
    records: list[Any] = []
    offset = batch.base_offset
    try:
        for record in batch:
            records.append(record)
            offset = record.offset + 1
    except Exception:
        if offset < next_offset:
            return [*records, DefaultRecord(offset, batch.max_timestamp, 0, None, None, [])], 1
    return records, 0


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's parser in Python, but for the names of headers."""

    _pos: int

    def _read_msg(self, _: Any = None) -> Any:
        if self.magic < _NEWEST_FORMAT:
            raise CorruptRecordException("an old format")
        length, start = decode_varint(self._buffer, self._pos)
        _, pos = decode_varint(self._buffer, start)
        late_ms, pos = decode_varint(self._buffer, pos)
        further, pos = decode_varint(self._buffer, pos)
        key, pos = self._nullable(pos)
        value, pos = self._nullable(pos)
        count, pos = decode_varint(self._buffer, pos)
        if count < 0:
            raise CorruptRecordException("a negative number of headers")
        headers: list[tuple[str, bytes | None]] = []
        while len(headers) < count:
            name, pos = self._nullable(pos)
            content, pos = self._nullable(pos)
            headers.append((NO_NAME if name is None else name.decode(errors="surrogateescape"), content))
        if pos - start != length:
            raise CorruptRecordException("a record of another length")
        self._pos = pos
        moment = self.max_timestamp if self.timestamp_type else self.first_timestamp + late_ms
        return DefaultRecord(self.base_offset + further, moment, self.timestamp_type, key, value, headers)

    def _nullable(self, pos: int) -> tuple[bytes | None, int]:
        size, pos = decode_varint(self._buffer, pos)
        if size < 0:
            return None, pos
        if size > len(self._buffer) - pos:
            raise CorruptRecordException("a field beyond the end")
        return bytes(self._buffer[pos : pos + size]), pos + size


def tolerate(fetcher: Fetcher, damaged: Damaged) -> None:
    """Let this fetcher, and no other of the process, unpack with TolerantRecords; before its first fetch.

    aiokafka has no seam for it: the function that unpacks an answer finds the two classes among its globals.
    """
    plain = Fetcher._proc_fetch_request
    own = {"MemoryRecords": Fetched, "PartitionRecords": partial(TolerantRecords, damaged)}
    assert own.keys() <= plain.__globals__.keys()
    rebound = FunctionType(
        plain.__code__, plain.__globals__ | own, plain.__name__, plain.__defaults__, plain.__closure__
    )
    fetcher._proc_fetch_request = MethodType(rebound, fetcher)
