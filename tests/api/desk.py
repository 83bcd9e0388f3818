"""A served API with a publisher that remembers, and the requests of platforms and browsers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from schemas import jsonio
from schemas.envelope import SealedEvent
from schemas.event import Event
from schemas.signing import SigningKey, sign
from schemas.verdict import verify_record
from tests.schemas.samples import a_key
from workers.channels.keys import StaticKeys

KEY = a_key("webhook")
SECRET = "a secret for cookies, long enough"


@dataclass
class RecordingBroker:
    """Takes what is published; `failure` is raised instead when set."""

    published: list[SealedEvent] = field(default_factory=list)
    failure: Callable[[], Exception] | None = None
    then: Callable[[SealedEvent], Awaitable[None]] | None = None
    """What happens right after a record was taken, before anyone hears of it."""

    async def publish(self, sealed: SealedEvent) -> None:
        if self.failure is not None:
            raise self.failure()
        self.published.append(sealed)
        if self.then is not None:
            await self.then(sealed)

    def events(self) -> list[Event]:
        """What the engine would read, each proven by the key of its channel."""
        return [proven(sealed) for sealed in self.published]


def proven(sealed: SealedEvent, key: SigningKey = KEY) -> Event:
    """The event in a record, through the engine's own verification."""
    registry = StaticKeys((key,)).verify_keys
    now, age = datetime.now(UTC), timedelta(days=1)
    return verify_record(sealed.headers, sealed.key, sealed.value, registry, now, age).event


def a_body(**changes: Any) -> bytes:
    """What a platform posts."""
    fields = {"account": "acme", "chat": "c1", "text": "hello", "principal": {"id": "u1"}}
    return jsonio.dumps({**fields, **changes})


def signed(
    body: bytes, webhook_id: str = "w1", at: datetime | None = None, key: SigningKey = KEY
) -> dict[str, str]:
    """The headers that prove `body`."""
    seconds = int((at or datetime.now(UTC)).timestamp())
    return {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": sign((key,), webhook_id, seconds, body),
    }


class Page:
    """A browser's side of the chat page, without the browser."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.AsyncClient(base_url=url, timeout=10)

    async def visit(self) -> str:
        """Open the page; the cookie it gave."""
        answer = await self.http.get("/")
        assert answer.status_code == 200
        return answer.cookies["parley_web"]

    @property
    def chat(self) -> str:
        return self.http.cookies["parley_web"].split(".")[1]

    async def say(self, text: Any, client_id: Any = None, **headers: str) -> httpx.Response:
        """Post a message as the page does."""
        body = {"text": text} | ({} if client_id is None else {"client_id": client_id})
        return await self.http.post("/web/messages", json=body, headers={"origin": self.url, **headers})

    async def letters(self, count: int, after: str = "", path: str = "/web/events") -> list[dict[str, Any]]:
        """The first `count` letters that the stream gives."""
        found: list[dict[str, Any]] = []
        async with self.http.stream("GET", f"{path}{after}") as stream:
            assert stream.status_code == 200, stream.status_code
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    found.append(jsonio.loads(line.removeprefix("data: ").encode()))
                if len(found) == count:
                    return found
        raise AssertionError(f"the stream ended after {len(found)} letters")
