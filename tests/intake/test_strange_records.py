"""Whatever lies in the topic, a batch ends with every record acknowledged and every good event admitted."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas.reason import Reason
from schemas.signing import sign
from tests.intake.conftest import Desk
from tests.support.events import KEYS, a_record, an_event
from workers.intake.dead_letters import DeadLetters, Refusal
from workers.kafka import KafkaSettings, RecordProducer
from workers.kafka.reader import read_topic
from workers.kafka.record import Record
from workers.telemetry.metrics import Metrics

STRANGE: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, "", "x" * 5000, "\x00", "\u202e", "🙂" * 300, [], {}, [[[[]]]], {"version": {}},
    "2026-13-45T99:00:00Z", "0001-01-01T00:00:00+14:00", ["message"], {"id": "u"}, {"id": 5, "claims": []},
]  # fmt: skip


def signed(value: bytes, event_id: str) -> Record:
    """A record under the channel's own signature, whatever its value."""
    record, stamp = a_record(an_event(event_id=event_id)), int(datetime.now(UTC).timestamp())
    headers = {**dict(record.headers), "webhook-timestamp": str(stamp).encode()}
    headers["webhook-signature"] = sign(KEYS.signing, event_id, stamp, value).encode()
    return replace(record, value=value, headers=list(headers.items()))


def mutated(luck: random.Random, number: int) -> Record:
    """An event whose fields were replaced, dropped or added at random, truly signed."""
    document: dict[str, Any] = json.loads(an_event(event_id=f"E{number}").encode())
    others = ["version", "thread", "attachments", "payload", "payload_base64", "reply_address"]
    for _ in range(luck.randint(1, 3)):
        field = luck.choice([*document, *others])
        if luck.random() < 0.2:
            document.pop(field, None)
        else:
            document[field] = luck.choice(
                [*STRANGE, {"nested": luck.choice(STRANGE)}, [luck.choice(STRANGE)] * 3]
            )
    document["channel"] = luck.choice(["lab", "lab", "lab", "nowhere"])
    return signed(json.dumps(document).encode(), f"E{number}")


def scrambled(luck: random.Random, number: int) -> Record:
    """A record whose headers, key or bytes were broken."""
    record = a_record(an_event(event_id=f"E{number}"))
    value, headers = record.value or b"", list(record.headers)
    acts: list[Callable[[], Record]] = [
        lambda: replace(record, value=luck.randbytes(luck.randint(0, 300))),
        lambda: replace(record, value=value[: luck.randint(0, len(value))]),
        lambda: replace(record, headers=headers[: luck.randint(0, len(headers) - 1)]),
        lambda: replace(record, headers=[(name, luck.randbytes(20)) for name, _ in headers]),
        lambda: replace(record, headers=[(name, None) for name, _ in headers]),  # type: ignore[misc]
        lambda: replace(record, headers=[*headers, *headers]),
        lambda: replace(record, key=luck.choice([None, b"", luck.randbytes(9)])),
        lambda: signed(b"[" * 100_000 + b"]" * 100_000, f"E{number}"),
        lambda: signed(b'{"channel":"lab","text":"\\ud800","version":1}', f"E{number}"),
    ]
    return luck.choice(acts)()


@pytest.mark.rule("EN-5")
@pytest.mark.parametrize("seed", range(6))
async def test_a_batch_of_strange_records_among_good_ones_is_settled_whole(desk: Desk, seed: int) -> None:
    luck = random.Random(seed)
    strange = [luck.choice([mutated, scrambled])(luck, number) for number in range(200)]
    good = [a_record(an_event(event_id=f"good-{number}")) for number in range(50)]
    batch = [*strange, *good]
    luck.shuffle(batch)

    await desk.take(*[replace(record, offset=n) for n, record in enumerate(batch)])

    assert desk.offsets() == list(range(250))
    assert {f"good-{number}" for number in range(50)} <= {event_id for _, event_id in await desk.runs()}
    letters = await desk.letters()
    assert len({letter.key for letter in letters}) == len(letters) > 100


@pytest.mark.rule("EN-5")
async def test_a_header_name_that_is_no_utf8_is_refused_and_the_value_kept(desk: Desk) -> None:
    good, bad = a_record(an_event(event_id="good"), offset=0), a_record(an_event(event_id="bad"), offset=1)

    await desk.take(good, replace(bad, headers=[*bad.headers, ("\udcff\udcfe", b"x")]))

    assert desk.offsets() == [0, 1]
    assert [event_id for _, event_id in await desk.runs()] == ["good"]
    (letter,) = await desk.letters()
    assert (letter.reason, letter.headers["parley-detail"]) == ("envelope_mismatch", b"header name")
    assert letter.value == bad.value


@pytest.mark.rule("EN-5", "EN-39")
async def test_a_refused_record_waits_for_the_broker_of_the_dead_letters(settings: KafkaSettings) -> None:
    """The producer is not up yet, as at start or in an outage; nothing is acknowledged before the letter is."""
    producer = RecordProducer(settings)
    letters = DeadLetters(producer, settings.dead_topic, Metrics())
    refusal = Refusal(a_record(an_event(), offset=7), Reason.UNAUTHENTICATED)

    burial = asyncio.create_task(letters.bury([refusal], datetime.now(UTC)))
    await asyncio.sleep(0.2)
    waited = not burial.done()
    await producer.start()
    await asyncio.wait_for(burial, timedelta(seconds=15).total_seconds())
    await producer.stop()

    found = [record.key async for record in read_topic(settings, settings.dead_topic)]
    assert waited
    assert found == [b"channel.events:0:7"]
