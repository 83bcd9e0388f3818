"""A webhook is an event once it is proven and safe, and nothing before."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from schemas.event import MAX_EVENT_BYTES
from tests.api.conftest import Served
from tests.api.desk import a_body, signed
from tests.schemas.samples import a_key
from workers.kafka.errors import BrokerAway, RecordTooLarge, TopicForbidden

PATH = "/channels/hook/webhook"


async def post(served: Served, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return await served.http.post(PATH, content=body, headers=headers)


@pytest.mark.rule("EN-2")
async def test_a_signed_request_is_published_under_the_channels_own_signature(hooks: Served) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body = a_body(text="hällo *wörld*")

    answer = await post(hooks, body, signed(body) | {"traceparent": trace})

    assert (answer.status_code, answer.content) == (202, b"")
    [event] = hooks.broker.events()
    assert (event.event_id, event.channel, event.account, event.chat) == ("w1", "hook", "acme", "c1")
    assert (event.text, event.principal.id, event.original_bytes()) == ("hällo *wörld*", "u1", body)
    assert ("traceparent", trace.encode()) in hooks.broker.published[0].headers


@pytest.mark.rule("EN-2")
async def test_old_and_future_and_changed_requests_are_refused_in_one_voice(hooks: Served) -> None:
    body, now = a_body(), datetime.now(UTC)
    headers = signed(body)
    first = await post(hooks, body, headers)
    repeat = await post(hooks, body, headers)

    refused = [
        await post(hooks, body, signed(body, at=now - timedelta(minutes=6))),
        await post(hooks, body, signed(body, at=now - timedelta(days=1))),
        await post(hooks, body, signed(body, at=now + timedelta(minutes=10))),
        await post(hooks, body[:-1] + b" ", headers),
        await post(hooks, body, signed(body, key=a_key("stranger"))),
        await post(hooks, body, headers | {"webhook-id": "w2"}),
    ]

    assert (first.status_code, repeat.status_code) == (202, 202)
    assert [event.event_id for event in hooks.broker.events()] == ["w1", "w1"]
    assert {answer.status_code for answer in refused} == {401}
    assert len({answer.content for answer in refused}) == 1
    assert refused[0].headers["content-type"] == "application/problem+json"
    assert refused[0].json()["code"] == "unauthorized"


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("content", [None, "", "x" * 5000, "v1,%%%", "\xff\xfe", "1e9", "v1," + "A" * 44])
async def test_a_malformed_header_is_unauthorized(hooks: Served, name: str, content: str | None) -> None:
    body = a_body()
    headers: dict[str, str | bytes] = {**signed(body)}
    del headers[name]
    if content is not None:
        headers[name] = content.encode("latin-1")

    answer = await hooks.http.post(PATH, content=body, headers=headers)  # type: ignore[arg-type]  # bytes on purpose

    assert answer.status_code == 401
    assert not hooks.broker.published


async def test_a_signature_header_that_comes_twice_is_unauthorized(hooks: Served) -> None:
    body = a_body()
    headers = [*signed(body).items(), ("webhook-signature", "v1,AAAA")]

    answer = await hooks.http.post(PATH, content=body, headers=headers)

    assert answer.status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"text=hello&x=*",
        b'{"account":"acme"}',
        a_body(chat=""),
        a_body(text=7),
        a_body(event_id="another"),
        a_body(channel="another"),
        b"[" * 100_000,
        b'{"account":"acme","chat":"c1","text":"x","principal":{"id":"u1"},"payload":NaN}',
    ],
)
async def test_a_proven_request_without_an_event_in_it_is_a_bad_request(hooks: Served, body: bytes) -> None:
    answer = await post(hooks, body, signed(body))

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert not hooks.broker.published


@pytest.mark.rule("EN-6")
async def test_a_body_above_the_limit_is_refused_before_it_is_sent(hooks: Served) -> None:
    port = int(hooks.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {MAX_EVENT_BYTES + 1}\r\n\r\n"

    writer.write(head.encode())
    async with asyncio.timeout(5):
        status = await reader.readline()

    writer.close()
    assert status.split()[1] == b"413"


@pytest.mark.rule("EN-6")
async def test_a_body_of_unknown_length_is_read_to_the_limit_only(hooks: Served) -> None:
    port = int(hooks.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST {PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode())

    for _ in range(15):
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
    async with asyncio.timeout(5):
        status = await reader.readline()

    writer.close()
    assert status.split()[1] == b"413"
    assert not hooks.broker.published


@pytest.mark.rule("EN-6")
async def test_an_event_that_outgrows_the_limit_when_sealed_is_too_large(hooks: Served) -> None:
    body = a_body(text="x" * (MAX_EVENT_BYTES - 4096))

    answer = await post(hooks, body, signed(body))

    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (BrokerAway("broker:9092", "gone"), 503),
        (TopicForbidden("channel.events", "no"), 503),
        (TimeoutError(), 503),
        (OSError(), 503),
        (RecordTooLarge("channel.events", 1), 413),
        (ZeroDivisionError("a secret detail"), 500),
    ],
)
async def test_what_was_not_acknowledged_is_not_accepted(
    hooks: Served, failure: Exception, status: int
) -> None:
    body = a_body()
    hooks.broker.failure = lambda: failure

    answer = await post(hooks, body, signed(body))

    assert answer.status_code == status
    assert ("retry-after" in answer.headers) is (status == 503)
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text
    assert "broker" not in answer.text


async def test_only_a_webhook_channel_has_a_webhook(hooks: Served) -> None:
    body = a_body()

    unknown = await hooks.http.post("/channels/nowhere/webhook", content=body, headers=signed(body))
    wrong_method = await hooks.http.get(PATH)

    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    assert (wrong_method.status_code, wrong_method.json()["code"]) == (405, "method_not_allowed")
