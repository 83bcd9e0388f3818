"""A record or a batch that cannot be parsed costs at most itself; every other one is handled."""

import asyncio
import random
import struct

import pytest
from aiokafka.codec import has_lz4
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer

from tests.kafka.batches import BadName, a_batch, publish_batch
from tests.kafka.test_consumer import SOON, committed, is_committed, publish, reading
from tests.support.waiting import eventually
from workers.kafka import KafkaSettings, RecordsUnreadable
from workers.kafka.producer import Outgoing
from workers.kafka.reader import read_topic
from workers.kafka.unpacking import NO_NAME, Fetched, TolerantRecords

ESCAPED = "\udcff\udcfe\udc80"
PLACE = TopicPartition("events", 3)
GOOD: list[Outgoing] = [(b"k", b"one", [("h", b"1")]), (None, b"two", []), (b"k", b"three", [("h", b"3")])]
_CRC, _FROM_CRC = struct.Struct(">I"), 17


def resealed(batch: bytes) -> bytes:
    """The batch with a checksum that holds again."""
    body = batch[_FROM_CRC + _CRC.size :]
    return batch[:_FROM_CRC] + _CRC.pack(calc_crc32c(body)) + body


def unpack(raw: bytes, offset: int = 0) -> tuple[list[tuple[int, bytes | None]], int, list[tuple[int, str]]]:
    """Offsets and values of a fetch, where the next begins, and what was told of damage."""
    told: list[tuple[int, str]] = []

    def damaged(place: TopicPartition, at: int, problem: str) -> None:
        assert place == PLACE
        told.append((at, problem))

    records = TolerantRecords(damaged, PLACE, Fetched(raw), None, offset, None, None, True, 0)
    return [(record.offset, record.value) for record in records], records.next_fetch_offset, told


@pytest.mark.kafka
@pytest.mark.rule("EN-5")
async def test_a_header_name_that_is_no_utf8_stops_neither_its_batch_nor_its_partition(
    settings: KafkaSettings,
) -> None:
    await publish_batch(
        settings,
        [(b"k", b"before", [("h", b"1")]), (b"k", b"bad", [(BadName("x"), b"2")]), (b"k", b"after", [])],
    )
    await publish_batch(settings, [(b"k", b"later", [])])

    async with reading(settings) as (_, read):
        await eventually("all four", lambda: len(read) == 4, SOON)
        await eventually("all four are committed", is_committed(settings, 4), SOON)

    assert [(record.offset, record.value, record.headers) for record in read] == [
        (0, b"before", [("h", b"1")]),
        (1, b"bad", [(ESCAPED, b"2")]),
        (2, b"after", []),
        (3, b"later", []),
    ]
    assert [record.value async for record in read_topic(settings, settings.events_topic)] == [
        b"before",
        b"bad",
        b"after",
        b"later",
    ]


@pytest.mark.kafka
@pytest.mark.rule("EN-5")
async def test_a_batch_whose_codec_is_missing_holds_its_own_partition_and_says_what_to_do(
    settings: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    if has_lz4():
        pytest.skip("this environment can unpack every codec")
    compressing = Producer({"bootstrap.servers": settings.bootstrap, "compression.type": "lz4"})
    for _ in range(100):
        compressing.produce(settings.events_topic, b"a" * 500, partition=1)
    await asyncio.to_thread(compressing.flush, 20)

    async with reading(settings) as (consumer, read):
        await eventually("it is said", lambda: "install cramjam" in caplog.text, SOON)
        await publish(settings, settings.events_topic, [b"%d" % n for n in range(40)], key=None)
        here = {0, 2, 3}
        await eventually("the others go on", lambda: {r.partition for r in read} == here, SOON)
        assert consumer.joined
        assert consumer.lag()[1] >= 100
    assert f"partition 1 of {settings.events_topic} cannot be read from offset 0 on" in caplog.text
    with pytest.raises(RecordsUnreadable, match="lz4"):
        [record async for record in read_topic(settings, settings.events_topic)]
    assert await committed(settings) == len(read)


def test_a_record_that_breaks_the_format_stands_empty_in_its_place() -> None:
    whole = a_batch(GOOD)
    spoiled = resealed(whole.replace(b"\x06two", b"\x7ftwo"))

    records, behind, told = unpack(spoiled + _moved(whole, 3))

    assert records == [(0, b"one"), (1, None), (3, b"one"), (4, b"two"), (5, b"three")]
    assert (behind, told) == (6, [])


def test_a_null_header_name_is_read_as_one_that_no_text_has() -> None:
    raw = resealed(a_batch([(b"k", b"v", [("", b"1")])]).replace(b"\x02v\x02\x00\x02", b"\x02v\x02\x01\x02"))

    told: list[str] = []
    (record,) = TolerantRecords(lambda *_: told.append(""), PLACE, Fetched(raw), None, 0, None, None, True, 0)

    assert record.headers == ((NO_NAME, b"1"),)
    assert told == []


def test_a_checksum_that_does_not_hold_is_told_only_where_nothing_can_be_read_before_it() -> None:
    whole = a_batch(GOOD)
    broken = whole[:-1] + b"\x00"
    assert unpack(whole + _moved(broken, 3)) == ([(0, b"one"), (1, b"two"), (2, b"three")], 3, [])
    assert unpack(_moved(broken, 3), 3) == (
        [],
        3,
        [(3, "[Error 2] CorruptRecordException: the checksum does not match")],
    )


def test_a_control_batch_is_passed_over() -> None:
    control = bytearray(a_batch([(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", [])]))
    control[22] |= 0x20
    assert unpack(resealed(bytes(control)) + _moved(a_batch(GOOD), 1)) == (
        [(1, b"one"), (2, b"two"), (3, b"three")],
        4,
        [],
    )


def test_a_fetch_without_anything_at_its_offset_is_told_and_not_repeated_for_ever() -> None:
    assert unpack(a_batch(GOOD), 7)[1:] == (7, [(7, "the broker answers with records below it only")])


def test_any_bytes_with_a_good_checksum_are_passed() -> None:
    luck, whole = random.Random(7), a_batch([*GOOD, (b"k", b"v", [(BadName("x"), b"")])])
    for _ in range(500):
        raw = bytearray(whole)
        for _ in range(luck.randint(1, 4)):
            raw[luck.randrange(61, len(raw))] = luck.randrange(256)

        records, behind, told = unpack(resealed(bytes(raw)))

        offsets = [offset for offset, _ in records]
        assert offsets == sorted(set(offsets) & {0, 1, 2, 3})
        assert (behind, told) == (4, [])


def _moved(batch: bytes, base_offset: int) -> bytes:
    return struct.pack(">q", base_offset) + batch[8:]
