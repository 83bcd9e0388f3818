"""Whether a record may be believed."""

import base64
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.envelope import EnvelopeMismatch, SealedEvent, seal, to_headers, webhook_id
from schemas.event import MAX_EVENT_BYTES, TooLarge, decode_event
from schemas.jsonio import dumps
from schemas.reason import Reason, RefusedRecord
from schemas.signing import SigningKey, VerifyKey, sign
from schemas.verdict import Unauthenticated, VerifiedEvent, verify_record
from tests.schemas.samples import NOW, Registry, a_key, an_event, golden

WEEK = timedelta(days=6)
REGISTRY = Registry(slack=[a_key().verify_key("slack")], github=[a_key("gh").verify_key("github")])
HEADER_NAMES = st.sampled_from(
    [
        "ce_id",
        "ce_time",
        "ce_source",
        "content-type",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "traceparent",
        "x",
    ]
)


def judge(record: SealedEvent, **changes: Any) -> VerifiedEvent:
    given_to = {
        "headers": record.headers,
        "key": record.key,
        "value": record.value,
        "registry": REGISTRY,
        "now": NOW,
        "max_age": WEEK,
    }
    return verify_record(**{**given_to, **changes})


@pytest.mark.rule("EN-1", "EN-2")
@pytest.mark.parametrize("record", golden("records"), ids=lambda record: record["name"])
def test_golden_records_are_believed(record: dict[str, Any]) -> None:
    value = record["value"].encode()
    channel = decode_event(value).channel
    headers = [(name, text.encode()) for name, text in record["headers"]]

    for number, text in enumerate(record["verify_keys"]):
        key = VerifyKey.parse(f"golden-{number}", text, channel)
        proven = verify_record(
            headers, record["record_key"].encode(), value, Registry(**{channel: [key]}), NOW, WEEK
        )
        assert proven.key_id == key.id
        assert proven.signed_at == NOW
        assert proven.event.raw == value


@pytest.mark.rule("EN-2")
@pytest.mark.parametrize("record", golden("refusals")["records"], ids=lambda record: record["name"])
def test_golden_refusals_are_refused_for_their_reason(record: dict[str, Any]) -> None:
    file = golden("refusals")
    keys: dict[str, Sequence[VerifyKey]] = {
        channel: [VerifyKey.parse(f"{channel}-{n}", text, channel) for n, text in enumerate(texts)]
        for channel, texts in file["keys"].items()
    }

    with pytest.raises(RefusedRecord) as refused:
        verify_record(
            [(name, text.encode()) for name, text in record["headers"]],
            record["record_key"].encode(),
            base64.b64decode(record["value_base64"]),
            keys.get,
            datetime.fromisoformat(file["now"]),
            timedelta(seconds=file["max_age_seconds"]),
        )

    assert refused.value.reason == record["reason"]


@pytest.mark.rule("EN-1")
def test_a_trace_parent_travels_and_a_malformed_one_is_dropped() -> None:
    good = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"

    assert judge(seal(an_event(), [a_key()], NOW, good)).traceparent == good
    assert judge(seal(an_event(), [a_key()], NOW, "00-zz")).traceparent is None


@pytest.mark.rule("EN-2")
def test_a_key_of_another_channel_never_proves_an_event_even_when_the_registry_hands_it_out() -> None:
    record = seal(an_event(), [a_key("gh")], NOW)

    with pytest.raises(Unauthenticated):
        judge(record, registry=lambda _: [a_key("gh").verify_key("github")])


@pytest.mark.rule("EN-2")
def test_a_key_bound_to_an_account_proves_only_that_account() -> None:
    registry = Registry(slack=[a_key().verify_key("slack", "T1")])

    assert judge(seal(an_event(account="T1"), [a_key()], NOW), registry=registry).key_id == "one"
    with pytest.raises(Unauthenticated):
        judge(seal(an_event(account="T2"), [a_key()], NOW), registry=registry)


@pytest.mark.rule("EN-6")
def test_an_event_over_the_size_limit_is_refused_at_both_ends() -> None:
    with pytest.raises(TooLarge):
        seal(an_event(text="x" * MAX_EVENT_BYTES), [a_key()], NOW)
    with pytest.raises(TooLarge):
        judge(seal(an_event(), [a_key()], NOW), value=b" " * (MAX_EVENT_BYTES + 1))


def test_a_missing_value_and_missing_headers_have_their_reasons() -> None:
    record = seal(an_event(), [a_key()], NOW)

    for changes, reason in (
        ({"value": None}, Reason.UNDECODABLE),
        ({"value": b""}, Reason.UNDECODABLE),
        ({"headers": None}, Reason.UNAUTHENTICATED),
        ({"headers": []}, Reason.UNAUTHENTICATED),
        ({"key": None}, Reason.ENVELOPE_MISMATCH),
    ):
        with pytest.raises(RefusedRecord) as refused:
            judge(record, **changes)
        assert refused.value.reason is reason


def test_an_old_version_is_believed_under_its_own_type() -> None:
    value = dumps(golden("event_v0")["value"])
    event = decode_event(value)
    signature = sign([a_key()], webhook_id(event.event_id), int(NOW.timestamp()), value)
    headers = dict(to_headers(event, int(NOW.timestamp()), signature)) | {"ce_type": b"parley.event.v0"}

    proven = verify_record(list(headers.items()), event.record_key, value, REGISTRY, NOW, WEEK)

    assert proven.event.principal.id == "U1"


def test_the_age_limit_is_exact_and_judged_by_the_signed_time() -> None:
    record = seal(an_event(occurred_at=NOW - timedelta(days=400)), [a_key()], NOW)

    assert judge(record, now=NOW + WEEK).signed_at == NOW
    with pytest.raises(RefusedRecord) as refused:
        judge(record, now=NOW + WEEK + timedelta(seconds=1))
    assert refused.value.reason is Reason.TOO_OLD


@given(
    st.lists(st.tuples(HEADER_NAMES, st.binary(max_size=60) | st.none()), max_size=4),
    st.binary(max_size=40) | st.none(),
    st.booleans(),
)
def test_no_header_or_key_makes_the_verdict_raise_anything_but_a_refusal(
    headers: list[tuple[str, bytes | None]], key: bytes | None, after: bool
) -> None:
    record = seal(an_event(), [a_key()], NOW)
    replaced = {name for name, _ in headers}
    kept = [pair for pair in record.headers if pair[0] not in replaced or after]

    with suppress(Unauthenticated, EnvelopeMismatch):
        judge(record, headers=[*kept, *headers], key=key or record.key)


@given(st.binary(max_size=200), st.booleans())
def test_no_value_makes_the_verdict_raise_anything_but_a_refusal(noise: bytes, inside: bool) -> None:
    record = seal(an_event(), [a_key()], NOW)
    value = record.value[:-1] + noise if inside else noise
    assume(value != record.value)

    with pytest.raises(RefusedRecord) as refused:
        judge(record, value=value)
    assert not refused.value.reason.replayable


def test_a_ce_time_at_the_edge_of_the_calendar_is_a_mismatch() -> None:
    record = seal(an_event(), [a_key()], NOW)
    for edge in (
        b"0001-01-01T00:00:00+23:59",
        b"9999-12-31T23:59:59-23:59",
        b"",
        b"\xff",
        b"2026-05-01T12:00:00",
    ):
        headers = [(name, edge if name == "ce_time" else content) for name, content in record.headers]
        with pytest.raises(EnvelopeMismatch) as refused:
            judge(record, headers=headers)
        assert refused.value.field == "ce_time"


def test_an_unproven_record_is_never_replayable_whatever_else_is_wrong_with_it() -> None:
    forged = seal(an_event(), [SigningKey.parse("forged", "whsec_" + "A" * 32)], NOW)

    for headers in (forged.headers, [*forged.headers, ("ce_id", b"x")], forged.headers[1:]):
        for key in (forged.key, b"other"):
            for now in (NOW, NOW + timedelta(days=99)):
                with pytest.raises(RefusedRecord) as refused:
                    judge(forged, headers=headers, key=key, now=now)
                assert not refused.value.reason.replayable
