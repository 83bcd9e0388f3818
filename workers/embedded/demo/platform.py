"""The other side of the demo's channel: posts signed events, and takes replies as a careful receiver does.

It accepts each `webhook-id` once, however often it comes, and drops the connection of the first reply right after it
accepted it: the sender cannot know.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
from aiohttp import web

from schemas import jsonio
from schemas.signing import SigningKey, sign, verify
from workers.embedded.demo.plan import ACCOUNT, CHANNEL, CHAT


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request that reached the platform; `repeated` when it had that key already."""

    key: str
    text: str
    repeated: bool
    dropped: bool
    after_s: float


class Platform:
    """`url` is where replies go. Use as a context manager."""

    def __init__(self, key: SigningKey) -> None:
        self.url = ""
        self.attempts: list[Attempt] = []
        self._key = key
        self._proof = [key.verify_key("")]
        self._began = time.monotonic()

    @property
    def messages(self) -> list[Attempt]:
        """What the person at the other end sees: each key once."""
        return [attempt for attempt in self.attempts if not attempt.repeated]

    async def __aenter__(self) -> Platform:
        application = web.Application()
        application.router.add_post("/replies", self._take)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/replies"
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        await self._runner.cleanup()

    async def post(self, port: int, event_id: str, text: str, times: int = 1) -> list[int]:
        """Post one event so many times at once; the statuses of the answers."""
        body = jsonio.dumps(
            {
                "account": ACCOUNT,
                "chat": CHAT,
                "principal": {"id": CHAT},
                "text": text,
                "occurred_at": datetime.now(UTC).isoformat(),
            }
        )
        url = f"http://127.0.0.1:{port}/channels/{CHANNEL}/webhook"
        return list(await asyncio.gather(*[self._post(url, event_id, body) for _ in range(times)]))

    async def _post(self, url: str, event_id: str, body: bytes) -> int:
        while True:
            seconds = int(datetime.now(UTC).timestamp())
            headers = {
                "content-type": "application/json",
                "webhook-id": event_id,
                "webhook-timestamp": str(seconds),
                "webhook-signature": sign([self._key], event_id, seconds, body),
            }
            async with self._http.post(url, data=body, headers=headers) as answer:
                if answer.status != 503:
                    return answer.status
            await asyncio.sleep(0.1)

    async def metrics(self, port: int) -> str:
        """What the worker shows of itself."""
        async with self._http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            return await answer.text()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        body, headers = await request.read(), request.headers
        key = headers.get("webhook-id", "")
        proven = verify(
            self._proof,
            key,
            headers.get("webhook-timestamp"),
            headers.get("webhook-signature"),
            body,
            datetime.now(UTC),
        )
        if proven is None:
            return web.Response(status=401)
        drops = not self.attempts
        repeated = any(attempt.key == key for attempt in self.attempts)
        text = str(jsonio.loads(body)["text"])
        self.attempts.append(Attempt(key, text, repeated, drops, time.monotonic() - self._began))
        if drops and request.transport is not None:
            request.transport.abort()
        return web.json_response({"id": f"message-{len(self.messages)}"})
