"""Any HTTP endpoint as a channel: signed POSTs out, signed POSTs in, both by Standard Webhooks.

Out: `webhook-id` is the delivery's key, the same at every attempt, so a receiver that remembers ids is
idempotent for ever; time stamp and signature are new each time. In: `read_request` proves a request and
makes an event of it.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from yarl import URL

from schemas import jsonio
from schemas.errors import Misconfigured
from schemas.event import Event, InvalidEvent, decode_document
from schemas.signing import SigningKey, sign, verify
from schemas.verdict import Unauthenticated
from workers.channels.port import (
    Capability,
    KeySource,
    LookUp,
    NotSent,
    Outcome,
    Outgoing,
    Refused,
    Sent,
    SizeUnit,
    Uncertain,
    Unsure,
)
from workers.channels.splitting import split_text

_MAX_ANSWER_BYTES: Final = 16 * 1024
_MAX_PROVIDER_ID: Final = 256
_DIGITS: Final = 10


class WebhookChannel:
    """`url` may hold secrets and is never logged or shown; `safe_url` may be."""

    def __init__(
        self,
        name: str,
        url: str,
        keys: KeySource,
        *,
        account: str = "default",
        capability: Capability = Capability.IDEMPOTENT,
        window: timedelta | None = None,
        transport_timeout: timedelta = timedelta(seconds=10),
        size_limit: int = 16_000,
        size_unit: SizeUnit = "utf8",
        resend_unknown: Collection[str] = (),
    ) -> None:
        if capability in (Capability.LOOK_UP_DEFINITE, Capability.LOOK_UP_POSITIVE):
            raise Misconfigured(f"channel {name}: a webhook cannot be asked")
        if (window is None) == (capability is Capability.IDEMPOTENT_WINDOW):
            raise Misconfigured(f"channel {name}: a window belongs to capability idempotent_window")
        self.name = name
        self.account = account
        self.capability = capability
        self.window = window
        self.settling_time = timedelta(0)
        self.transport_timeout = transport_timeout
        self.size_limit = size_limit
        self.size_unit = size_unit
        self.keys: KeySource | None = keys
        self.safe_url = redact_url(url)
        self._url = URL(url)
        self._keys = keys
        self._resend_unknown = frozenset(resend_unknown)
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the HTTP session; nothing is requested yet."""
        # The connection limit is above the sender's concurrency, so that no request waits inside its
        # time-out.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=256),
            auto_decompress=True,
            skip_auto_headers=("Accept", "Accept-Encoding"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def resends_unknown(self, account: str) -> bool:
        return account in self._resend_unknown

    def split(self, text: str) -> tuple[str, ...]:
        return split_text(text, self.size_limit, self.size_unit)

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        if self._http is None:
            return NotSent("the channel is not open")
        signing = self._keys.signing_keys(self.name)
        if not signing:
            return NotSent("the channel has no signing key")
        body, seconds = jsonio.dumps(_body(outgoing)), timeout.total_seconds()
        try:
            async with self._http.post(
                self._url,
                data=body,
                headers=_headers(outgoing, body, signing),
                timeout=_request_timeout(seconds),
                allow_redirects=False,
            ) as answer:
                return await _outcome(answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return NotSent(type(error).__name__)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Uncertain(type(error).__name__)

    async def look_up(self, outgoing: Outgoing, timeout: timedelta) -> LookUp:
        return Unsure("a webhook cannot be asked")


def _body(outgoing: Outgoing) -> dict[str, Any]:
    return {
        "type": "parley.reply.v1",
        "delivery_id": str(outgoing.delivery_id),
        "key": outgoing.key,
        "channel": outgoing.channel,
        "account": outgoing.account,
        "address": outgoing.address,
        "text": outgoing.text,
        "possible_duplicate": outgoing.possible_duplicate,
    }


def _headers(outgoing: Outgoing, body: bytes, signing: Sequence[SigningKey]) -> dict[str, str]:
    timestamp = int(datetime.now(UTC).timestamp())
    headers = {
        "content-type": "application/json",
        "user-agent": "parley",
        "webhook-id": outgoing.key,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(signing, outgoing.key, timestamp, body),
    }
    if outgoing.traceparent is not None:
        headers["traceparent"] = outgoing.traceparent
    return headers


@lru_cache(maxsize=16)
def _request_timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=seconds / 2)


async def _outcome(answer: aiohttp.ClientResponse) -> Outcome:
    status = answer.status
    if 200 <= status < 300:
        return Sent(await _provider_id(answer))
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        wait = retry_after(answer.headers.get("retry-after"), datetime.now(UTC))
        return NotSent("HTTP 429", wait, "account", rate_limited=True)
    if status >= 500 or status == HTTPStatus.REQUEST_TIMEOUT:
        return Uncertain(f"HTTP {status}")
    return Refused(f"HTTP {status}")


async def _provider_id(answer: aiohttp.ClientResponse) -> str | None:
    """The `id` in a JSON answer; an answer that breaks off or is no such thing still says that it was
    accepted."""
    try:
        raw = await answer.content.read(_MAX_ANSWER_BYTES)
        if not raw:
            return None
        found = decode_document(raw).get("id")
    except (aiohttp.ClientError, TimeoutError, OSError, jsonio.InvalidJson):
        return None
    return found[:_MAX_PROVIDER_ID] if isinstance(found, str) else None


def retry_after(header: str | None, now: datetime) -> timedelta | None:
    """The wait in a Retry-After header, as seconds or as an HTTP date; None where there is none to
    understand."""
    header = (header or "").strip()
    if header.isascii() and header.isdigit():
        return timedelta(seconds=int(header[:_DIGITS]))
    try:
        moment = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(timedelta(0), moment - now)


def redact_url(url: str) -> str:
    """Scheme, host and port: what of a URL can be shown without showing user, password, path or query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit((parts.scheme, f"{parts.hostname or ''}{port}", "/...", "", ""))


def read_request(
    channel: str, keys: KeySource, headers: Mapping[str, str], body: bytes, now: datetime
) -> Event:
    """The event in a signed request to channel `channel`; header names are lower case.

    The body is an event without `version`, `event_id` and `channel`, which come from here, the `webhook-id`
    and the route; the body is kept exactly as `payload_base64`. Raises Unauthenticated before anything is
    parsed, then InvalidJson or InvalidEvent.
    """
    webhook_id = headers.get("webhook-id")
    proof = verify(
        keys.verify_keys(channel),
        webhook_id,
        headers.get("webhook-timestamp"),
        headers.get("webhook-signature"),
        body,
        now,
    )
    if proof is None or webhook_id is None:
        raise Unauthenticated(channel)
    document = decode_document(body)
    if proof.account is not None and document.get("account") != proof.account:
        raise Unauthenticated(channel)
    for name, expected in (("channel", channel), ("event_id", webhook_id)):
        if document.get(name, expected) != expected:
            raise InvalidEvent(name, "must be absent or that of the request")
    seconds = headers["webhook-timestamp"]
    stamped = datetime.fromtimestamp(int(seconds), UTC).isoformat()
    defaults = {"kind": "message", "audience": "direct", "occurred_at": stamped}
    named = {
        "version": 1,
        "event_id": webhook_id,
        "channel": channel,
        "payload_base64": base64.b64encode(body).decode(),
    }
    return Event.from_document({**defaults, **document, **named}, body)
