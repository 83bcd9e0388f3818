"""The webhook channel keeps the contract against a real HTTP server, and speaks Standard Webhooks."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from schemas.errors import Misconfigured
from schemas.event import InvalidEvent
from schemas.jsonio import InvalidJson
from schemas.signing import SigningKey, sign, verify
from schemas.verdict import Unauthenticated
from tests.channels.contract import QUICK, ChannelContract, an_outgoing
from tests.channels.receiver import Receiver, a_receiver
from workers.channels.keys import StaticKeys
from workers.channels.port import Capability, NotSent, Refused, Sent
from workers.channels.webhook import WebhookChannel, read_request, redact_url, retry_after

KEY = SigningKey.parse("k1", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
NEXT_KEY = SigningKey.parse("k2", "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=")
KEYS = StaticKeys((KEY, NEXT_KEY))
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class WebhookRig:
    def __init__(self, channel: WebhookChannel, receiver: Receiver) -> None:
        self.channel = channel
        self.receiver = receiver

    def misbehave(self, how: str) -> None:
        match how:
            case "refuse":
                self.receiver.do(400)
            case "rate_limit":
                self.receiver.do(429, headers={"retry-after": "7"})
            case "server_error":
                self.receiver.do(503)
            case "stall" | "drop" | "store_then_drop":
                self.receiver.do(how)
            case _:
                raise AssertionError(how)

    def held(self) -> list[str]:
        return [json.loads(body)["text"] for body in self.receiver.stored.values()]


@pytest.fixture
async def rig() -> AsyncIterator[WebhookRig]:
    async with a_receiver() as receiver:
        channel = WebhookChannel("hook", receiver.url, KEYS, size_limit=200)
        await channel.open()
        yield WebhookRig(channel, receiver)
        await channel.close()


class TestWebhook(ChannelContract):
    """Against the receiver, which remembers ids as Standard Webhooks asks."""


async def test_the_id_is_the_same_at_every_attempt_and_every_key_signs(rig: WebhookRig) -> None:
    outgoing = an_outgoing(rig.channel)
    rig.receiver.do(503)
    await rig.channel.send(outgoing, QUICK)
    await rig.channel.send(outgoing, QUICK)

    assert {headers["webhook-id"] for headers, _ in rig.receiver.requests} == {outgoing.key}
    headers, body = rig.receiver.requests[0]
    assert headers["traceparent"] == outgoing.traceparent
    for key in (KEY, NEXT_KEY):
        signature, stamp = headers["webhook-signature"], headers["webhook-timestamp"]
        assert verify([key.verify_key()], outgoing.key, stamp, signature, body, datetime.now(UTC)) is not None


async def test_the_id_of_the_answer_is_kept_and_an_answer_that_breaks_off_is_still_accepted(
    rig: WebhookRig,
) -> None:
    outgoing = an_outgoing(rig.channel)

    assert await rig.channel.send(outgoing, QUICK) == Sent(f"p-{outgoing.key}")
    rig.receiver.do("break_off")
    assert await rig.channel.send(outgoing, QUICK) == Sent(None)


@pytest.mark.rule("EN-33")
async def test_a_refused_connection_is_certainly_not_sent() -> None:
    channel = WebhookChannel("hook", "http://127.0.0.1:9/s3cr3t", KEYS)
    await channel.open()

    outcome = await channel.send(an_outgoing(channel), timedelta(seconds=2))

    assert isinstance(outcome, NotSent)
    assert not outcome.rate_limited
    assert "s3cr3t" not in repr(outcome)
    await channel.close()


async def test_a_redirect_is_not_followed(rig: WebhookRig) -> None:
    rig.receiver.do(307, headers={"location": rig.receiver.url})

    assert await rig.channel.send(an_outgoing(rig.channel), QUICK) == Refused("HTTP 307")
    assert len(rig.receiver.requests) == 1


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("3", timedelta(seconds=3)),
        (" 0 ", timedelta(0)),
        ("Fri, 02 Jan 2026 03:04:09 GMT", timedelta(seconds=4)),
        ("Fri, 02 Jan 2026 03:04:01 GMT", timedelta(0)),
        ("9" * 400, timedelta(seconds=9_999_999_999)),
        ("-5", None),
        ("soon", None),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", None),
        ("", None),
        (None, None),
        ("٣", None),
    ],
)
@pytest.mark.rule("EN-31")
def test_retry_after_is_seconds_or_a_date(header: str | None, wait: timedelta | None) -> None:
    assert retry_after(header, NOW) == wait


def test_a_url_is_shown_without_its_secrets() -> None:
    assert redact_url("https://user:pw@h.example:8443/bot123:abc/x?token=t") == "https://h.example:8443/..."


def test_a_webhook_cannot_claim_to_be_asked() -> None:
    with pytest.raises(Misconfigured):
        WebhookChannel("hook", "http://h", KEYS, capability=Capability.LOOK_UP_DEFINITE)


def a_request(body: bytes, webhook_id: str = "msg_1") -> dict[str, str]:
    stamp = int(NOW.timestamp())
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(stamp),
        "webhook-signature": sign([KEY], webhook_id, stamp, body),
    }


BODY = json.dumps({"account": "a", "chat": "c", "principal": {"id": "u"}, "text": "hi \ud83d"}).encode()


@pytest.mark.rule("EN-2")
def test_a_signed_request_becomes_an_event_named_by_its_id_and_its_route() -> None:
    event = read_request("hook", KEYS, a_request(BODY), BODY, NOW)

    assert (event.channel, event.event_id, event.account, event.chat) == ("hook", "msg_1", "a", "c")
    assert (event.kind, event.audience, event.occurred_at) == ("message", "direct", NOW)
    assert event.text == "hi \ufffd"
    assert event.original_bytes() == BODY


@pytest.mark.rule("EN-2")
@pytest.mark.parametrize(
    "change",
    [
        {"webhook-signature": "v1,AAAA"},
        {"webhook-timestamp": str(int(NOW.timestamp()) - 301)},
        {"webhook-id": "msg_2"},
        {"webhook-signature": "\udcff nonsense ,"},
    ],
)
def test_a_request_that_is_not_signed_is_refused_before_it_is_read(change: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        read_request("hook", KEYS, {**a_request(BODY), **change}, BODY, NOW)
    with pytest.raises(Unauthenticated):
        read_request("hook", KEYS, {}, b"not json", NOW)


def test_a_signed_request_cannot_name_another_channel_and_must_be_an_event() -> None:
    for body, error in [
        (b'{"channel": "other", "account": "a"}', InvalidEvent),
        (b'{"event_id": "other"}', InvalidEvent),
        (b"{}", InvalidEvent),
        (b"[", InvalidJson),
    ]:
        with pytest.raises(error):
            read_request("hook", KEYS, a_request(body), body, NOW)
