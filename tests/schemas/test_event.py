"""Event version 1: what is read, what is refused, and what counts as the same event."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Rejected
from schemas.event import Event, InvalidEvent, UnsupportedVersion, decode_event
from schemas.identity import Principal
from schemas.upcast import upcast
from tests.schemas.samples import NOW, an_event, golden

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(ANY_TEXT, v, max_size=3), max_leaves=8
)


def document(**changes: Any) -> dict[str, Any]:
    written = json.loads(an_event().encode())
    return {name: value for name, value in {**written, **changes}.items() if value is not ...}


def decode(**changes: Any) -> Event:
    return decode_event(json.dumps(document(**changes)).encode())


def test_an_event_survives_encoding() -> None:
    event = an_event(
        principal=Principal("U1", None, {"role": "admin"}),
        attachments=[{"id": "F1", "size_bytes": 3}],
        payload={"a": [None, {"b": None}], "c": "x"},
        payload_base64="AP8=",
    )

    read = decode_event(event.encode())

    assert read.model_dump() == event.model_dump()
    assert read.original_bytes() == b"\x00\xff"
    assert read.raw == event.encode()
    assert event.raw == b""


@pytest.mark.rule("EN-3")
def test_unknown_fields_are_ignored_at_every_level() -> None:
    event = decode(new=1, principal={"id": "U1", "new": 1}, attachments=[{"id": "F1", "new": 1}])

    assert event.attachments[0].id == "F1"


@pytest.mark.rule("EN-3")
@pytest.mark.parametrize("version", [2, 99, -1])
def test_an_unknown_major_version_is_named(version: int) -> None:
    with pytest.raises(UnsupportedVersion) as refused:
        decode(version=version)
    assert refused.value.version == version


@pytest.mark.rule("EN-3")
def test_an_old_event_is_upcast_as_its_golden_file_says() -> None:
    file = golden("event_v0")

    event = decode_event(json.dumps(file["value"]).encode())

    assert json.loads(event.encode()) == file["upcast"]


@given(st.dictionaries(st.sampled_from(["ts", "user", "private", "files", "version", "x"]), VALUES))
def test_upcasting_never_raises_and_leaves_its_argument_alone(old: dict[str, Any]) -> None:
    before = json.dumps(old)

    upcast(old, 0)

    assert json.dumps(old) == before


@pytest.mark.rule("EN-4")
def test_text_is_cleaned_while_the_bytes_it_came_from_stay() -> None:
    value = json.dumps(document(text="a\x00b\ud800", sender_name="\udfff")).encode()

    event = decode_event(value)

    assert (event.text, event.sender_name) == ("a\ufffdb\ufffd", "\ufffd")
    assert event.raw == value
    assert an_event(text="\x00\ud800").text == "\ufffd\ufffd"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("event_id", ""),
        ("event_id", "x" * 257),
        ("event_id", "a\nb"),
        ("event_id", 5),
        ("channel", None),
        ("chat", ...),
        ("audience", ...),
        ("thread", ""),
        ("kind", "Message"),
        ("kind", "message\n"),
        ("text", 5),
        ("principal", "U1"),
        ("principal", {"claims": {}}),
        ("principal", {"id": "U1", "claims": {"a": 1}}),
        ("principal", {"id": "U1", "claims": {str(n): "" for n in range(65)}}),
        ("attachments", [{"id": "F1"}] * 65),
        ("attachments", [{"id": "F1", "size_bytes": -1}]),
        ("attachments", [{"id": "F1", "size_bytes": "1"}]),
        ("occurred_at", "2026-05-01T12:00:00"),
        ("occurred_at", 1777636800),
        ("occurred_at", "1777636800"),
        ("occurred_at", "0001-01-01T00:00:00+23:59"),
        ("occurred_at", "9999-12-31T23:59:59-23:59"),
        ("payload_base64", "not base64"),
        ("version", "1"),
        ("version", True),
        ("version", 1.0),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidEvent) as refused:
        decode(**{field: value})
    assert refused.value.field.split(".")[0] == field


def test_a_refusal_does_not_quote_what_was_said() -> None:
    with pytest.raises(InvalidEvent) as refused:
        decode(kind="my secret word", payload_base64="my secret word")
    assert "secret" not in refused.value.detail


def test_times_are_kept_in_utc() -> None:
    there = datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))

    assert an_event(occurred_at=there).occurred_at == NOW
    assert decode(occurred_at="2026-05-01T14:00:00+02:00").occurred_at.tzinfo is UTC


def test_the_reply_address_defaults_to_chat_and_thread() -> None:
    assert an_event(chat="a/b", thread=None).address == "a%2Fb"
    assert an_event(chat="C1", thread="17.5").address == "C1/17.5"
    assert an_event(reply_address="https://example.org/x").address == "https://example.org/x"


@pytest.mark.rule("EN-9")
def test_the_payload_hash_does_not_depend_on_key_order_or_transport_fields() -> None:
    shuffled = dict(reversed(document().items()))
    retried = document(
        occurred_at="2026-05-01T13:00:00Z",
        sender_name="Renamed",
        reply_address="elsewhere",
        payload={"retry": 2},
        new=1,
        principal={"id": "U1", "tenant": "T1", "claims": {"token": "other"}},
    )

    hashes = {decode_event(json.dumps(d).encode()).payload_hash() for d in (document(), shuffled, retried)}

    assert len(hashes) == 1


@pytest.mark.rule("EN-9")
@pytest.mark.parametrize(
    "change",
    [
        {"message_id": "other"},
        {"channel": "other"},
        {"account": "other"},
        {"chat": "other"},
        {"thread": None},
        {"audience": "direct"},
        {"kind": "edit"},
        {"principal": {"id": "U2", "tenant": "T1"}},
        {"principal": {"id": "U1", "tenant": "T2"}},
        {"text": "hello "},
        {"attachments": [{"id": "F1"}]},
    ],
)
def test_the_payload_hash_covers_every_semantic_field(change: dict[str, Any]) -> None:
    assert decode(**change).payload_hash() != an_event().payload_hash()


@pytest.mark.rule("EN-9")
def test_the_payload_hash_carries_its_version_and_is_over_text_as_typed() -> None:
    version, digest = an_event(text="\u00e9").payload_hash()

    assert (version, len(digest)) == (1, 32)
    assert digest != an_event(text="e\u0301").payload_hash()[1]


@given(st.dictionaries(st.sampled_from([*Event.model_fields, "x"]), VALUES))
def test_no_document_makes_decoding_raise_anything_but_a_refusal(changes: dict[str, Any]) -> None:
    with suppress(Rejected):
        decode(**changes)


@given(st.binary())
def test_no_bytes_make_decoding_raise_anything_but_a_refusal(value: bytes) -> None:
    with pytest.raises(Rejected):
        decode_event(value)


@given(ANY_TEXT, VALUES)
def test_whatever_text_and_payload_hold_an_encoded_event_reads_the_same(text: str, payload: Any) -> None:
    event = decode(text=text, payload=payload)

    assert decode_event(event.encode()).model_dump() == event.model_dump()
