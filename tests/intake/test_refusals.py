"""What cannot be believed goes to the dead letters with reason and position; its neighbours never notice."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from schemas.event import MAX_EVENT_BYTES
from schemas.keys import KeyFile
from schemas.signing import sign
from tests.intake.conftest import Desk, a_desk
from tests.support.events import KEYS, a_key, a_record, an_agent, an_event, sealed, secret_of
from workers.channels.lab import LabChannel
from workers.kafka import KafkaSettings
from workers.kafka.record import Headers, Record

DAY = timedelta(days=1)


def signed_value(value: bytes, event_id: str = "E") -> Record:
    """A record whose value is signed by the channel's own key, whatever the value is."""
    record = a_record(an_event(event_id=event_id))
    stamp = int(datetime.now(UTC).timestamp())
    signature = sign(KEYS.signing, event_id, stamp, value)
    return replace(
        record,
        value=value,
        headers=changed(record, webhook_signature=signature, webhook_timestamp=str(stamp)),
    )


def changed(record: Record, **headers: str) -> Headers:
    """The headers of `record` with these in place of its own."""
    new = {name.replace("webhook_", "webhook-"): content.encode() for name, content in headers.items()}
    return list({**dict(record.headers), **new}.items())


def bad_records() -> dict[str, Record]:
    """One record of each reason that a stranger can cause."""
    fine = a_record(an_event())
    document = json.loads(an_event(event_id="E").encode())
    return {
        "undecodable": replace(a_record(an_event()), value=None),
        "invalid_json": signed_value(b'{"channel": "lab", "text": NaN}'),
        "unauthenticated": a_record(sealed(an_event(), a_key("stranger"))),
        "unsupported_version": signed_value(json.dumps(document | {"version": 99}).encode()),
        "invalid_event": signed_value(json.dumps(document | {"audience": 7}).encode()),
        "envelope_mismatch": replace(fine, headers=changed(fine, ce_id="another")),
        "too_old": a_record(sealed(an_event(), now=datetime.now(UTC) - 7 * DAY)),
        "too_new": a_record(sealed(an_event(), now=datetime.now(UTC) + DAY)),
    }


@pytest.mark.rule("EN-5")
async def test_every_kind_of_bad_record_is_a_dead_letter_and_good_neighbours_are_admitted(desk: Desk) -> None:
    bad = {reason: replace(record, offset=n * 2) for n, (reason, record) in enumerate(bad_records().items())}
    good = [a_record(an_event(), offset=n * 2 + 1) for n in range(len(bad))]
    batch = [record for pair in zip(bad.values(), good, strict=True) for record in pair]

    await desk.take(*batch)

    letters = {letter.reason: letter for letter in await desk.letters()}
    assert set(letters) == set(bad)
    for reason, record in bad.items():
        assert letters[reason].key == f"channel.events:0:{record.offset}"
        assert letters[reason].value == record.value
        assert letters[reason].headers["parley-sha256"].decode() == sha256(record.value or b"").hexdigest()
    assert len(await desk.runs()) == len(good)
    assert desk.offsets() == list(range(len(batch)))


@pytest.mark.rule("EN-5", "EN-47")
async def test_a_dead_letter_holds_no_signature_and_no_header_that_nobody_knows(desk: Desk) -> None:
    record = a_record(sealed(an_event(), a_key("stranger")))
    nulls: Headers = [("traceparent", None), ("ce_id", b"again")]  # type: ignore[list-item]  # Kafka allows null
    record = replace(record, headers=[*record.headers, ("authorization", b"Bearer s3cret"), *nulls])
    signature = dict(record.headers)["webhook-signature"]

    await desk.take(record)

    [letter] = await desk.letters()
    everything = b"|".join([*letter.headers.values(), *map(str.encode, letter.headers)])
    assert signature not in everything
    assert b"s3cret" not in everything
    assert "webhook-signature" not in letter.headers
    assert {"ce_id", "webhook-id", "parley-refused-at"} <= set(letter.headers)


@pytest.mark.rule("EN-5", "EN-9")
async def test_a_mismatch_is_a_dead_letter_under_its_own_position(desk: Desk) -> None:
    first = a_record(an_event(event_id="E", chat="c", text="one"), offset=1)
    other = a_record(an_event(event_id="E", chat="c", text="two"), offset=2)

    await desk.take(first, other)

    assert [(letter.reason, letter.key) for letter in await desk.letters()] == [
        ("payload_mismatch", "channel.events:0:2")
    ]
    assert desk.offsets() == [1, 2]
    assert (desk.counted("admitted"), desk.counted("mismatch")) == (1, 1)


@pytest.mark.rule("EN-5", "EN-14")
async def test_what_only_the_store_refuses_is_a_dead_letter_too(desk: Desk) -> None:
    await desk.database.execute("alter table runs add check (event_id <> 'poison')")
    events = [an_event(event_id="poison" if n == 7 else f"fine-{n}") for n in range(20)]

    await desk.take(*[a_record(event, offset=n) for n, event in enumerate(events)])

    assert [(letter.reason, letter.key) for letter in await desk.letters()] == [
        ("refused_by_store", "channel.events:0:7")
    ]
    assert len(await desk.runs()) == 19
    assert desk.offsets() == list(range(20))


@pytest.mark.rule("EN-5", "EN-13")
async def test_an_agent_whose_concurrency_key_fails_costs_the_other_agent_nothing(
    database_url: str, settings: KafkaSettings
) -> None:
    broken = an_agent("broken", concurrency_key=lambda event: event.payload["customer"])
    async with a_desk(database_url, settings, agents=[broken, an_agent("echo")]) as desk:
        await desk.take(a_record(an_event(event_id="E"), offset=3))

        assert await desk.runs() == [("echo", "E")]
        assert [letter.reason for letter in await desk.letters()] == ["refused_by_store"]
        assert desk.offsets() == [3]


@pytest.mark.rule("EN-6")
async def test_an_oversized_record_leaves_its_hash_and_its_position_only(desk: Desk) -> None:
    huge = signed_value(b'{"channel": "lab", "text": "' + b"x" * MAX_EVENT_BYTES + b'"}')
    huge = replace(huge, offset=1)

    await desk.take(huge, a_record(an_event(), offset=2))

    [letter] = await desk.letters()
    assert letter.value is None
    assert set(letter.headers) == {"parley-reason", "parley-detail", "parley-sha256", "parley-refused-at"}
    assert letter.headers["parley-sha256"].decode() == sha256(huge.value or b"").hexdigest()
    assert (letter.key, letter.reason) == ("channel.events:0:1", "too_large")
    assert len(await desk.runs()) == 1
    assert desk.offsets() == [1, 2]


@pytest.mark.rule("EN-5", "EN-6")
async def test_a_letter_that_the_broker_finds_too_large_goes_without_its_value(
    database_url: str, settings: KafkaSettings
) -> None:
    narrow = replace(settings, record_bytes=2_000)
    async with a_desk(database_url, narrow) as desk:
        long = a_record(sealed(an_event(text="x" * 3_000), a_key("stranger")), offset=1)
        short = a_record(sealed(an_event(text="x"), a_key("stranger")), offset=2)

        await desk.take(long, short, a_record(an_event(), offset=3))

        letters = {letter.key: letter.value for letter in await desk.letters()}
        assert letters == {"channel.events:0:1": None, "channel.events:0:2": short.value}
        assert desk.offsets() == [1, 2, 3]


@pytest.mark.rule("EN-2")
async def test_keys_are_read_again_while_it_runs(
    database_url: str, settings: KafkaSettings, tmp_path: Path
) -> None:
    path, clock = tmp_path / "lab.keys", iter(range(0, 1000, 2))
    path.write_text(f"one {secret_of('one')}\n")
    keys = KeyFile(path, "lab", clock=lambda: float(next(clock)))
    async with a_desk(database_url, settings, channels=[LabChannel(keys=keys)]) as desk:
        rotated = [an_event(event_id=f"E{n}") for n in range(4)]
        await desk.take(a_record(sealed(rotated[0], a_key("one")), offset=0))

        path.write_text(f"one {secret_of('one')}\ntwo {secret_of('two')}\n")
        await desk.take(a_record(sealed(rotated[1], a_key("two")), offset=1))
        path.write_text(f"# the first key is gone\ntwo {secret_of('two')}\n")
        await desk.take(a_record(sealed(rotated[2], a_key("one")), offset=2))
        await desk.take(a_record(sealed(rotated[3], a_key("one"), a_key("two")), offset=3))

        assert [event_id for _, event_id in await desk.runs()] == ["E0", "E1", "E3"]
        assert [(letter.reason, letter.key) for letter in await desk.letters()] == [
            ("unauthenticated", "channel.events:0:2")
        ]


@pytest.mark.rule("EN-2")
async def test_the_key_of_another_channel_and_an_unknown_channel_prove_nothing(
    database_url: str, settings: KafkaSettings, tmp_path: Path
) -> None:
    for name in ("lab", "slack"):
        (tmp_path / name).write_text(f"{name} {secret_of(name)}\n")
    channels = [LabChannel(name, keys=KeyFile(tmp_path / name, name)) for name in ("lab", "slack")]
    channels.append(LabChannel("mute"))
    async with a_desk(database_url, settings, channels=channels) as desk:
        foreign = sealed(an_event(), a_key("slack"))
        unknown = sealed(an_event(channel="nowhere"), a_key("lab"))
        keyless = sealed(an_event(channel="mute"), a_key("lab"))

        await desk.take(
            *[a_record(each, offset=n) for n, each in enumerate([foreign, unknown, keyless])],
            a_record(sealed(an_event(event_id="fine"), a_key("lab")), offset=3),
        )

        assert [letter.reason for letter in await desk.letters()] == ["unauthenticated"] * 3
        assert await desk.runs() == [("echo", "fine")]


@pytest.mark.rule("EN-2")
async def test_an_event_just_below_the_age_limit_is_admitted_and_one_above_is_too_old(
    database_url: str, settings: KafkaSettings
) -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    async with a_desk(database_url, settings, event_age_limit=DAY, now=lambda: now) as desk:
        young = a_record(sealed(an_event(event_id="young"), now=now - DAY + timedelta(seconds=1)))
        old = a_record(sealed(an_event(event_id="old"), now=now - DAY - timedelta(seconds=1)))

        await desk.take(young, old)

        assert await desk.runs() == [("echo", "young")]
        assert [letter.reason for letter in await desk.letters()] == ["too_old"]


async def test_an_event_that_nobody_listens_to_is_acknowledged_and_leaves_nothing(desk: Desk) -> None:
    await desk.take(a_record(an_event(kind="reaction"), offset=5))

    assert desk.offsets() == [5]
    assert await desk.rows() == 0
    assert await desk.letters() == []
