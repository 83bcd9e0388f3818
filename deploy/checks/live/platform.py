"""The other side of the channels: posts events to the API, and takes replies as an unreliable platform does."""

import asyncio
import itertools
import json
import random
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp import web
from confluent_kafka import Producer

from deploy.checks.live.bots import KEY, PAGER, SHOP, STRANGER
from schemas.signing import sign

EVENTS_A_SECOND: Final = 40
_CHATS: Final = 60
_SEED: Final = 7


class Platform:
    """`url` is where replies go; `run` posts until cancelled. Use as a context manager."""

    def __init__(self) -> None:
        self.url = ""
        self.posted = 0
        self.taken = 0
        self._chance = random.Random(_SEED)

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/{channel}", self._take)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/"
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()
        await self._runner.cleanup()

    async def run(self, api_port: int, bootstrap: str, topic: str) -> None:
        """Post `EVENTS_A_SECOND`; now and then the same one again, and a record that nobody signed."""
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        api = f"http://127.0.0.1:{api_port}/channels/"
        for number in itertools.count():
            channel, event = self._event(number)
            await self._post(f"{api}{channel}/webhook", f"event-{number}", event)
            if number % 20 == 0:
                await self._post(f"{api}{channel}/webhook", f"event-{number}", event)
            if number % 50 == 0:
                producer.produce(topic, b'{"version": 1}', f"chat-{number}".encode())
                producer.poll(0)
            await asyncio.sleep(1 / EVENTS_A_SECOND)

    def _event(self, number: int) -> tuple[str, dict[str, Any]]:
        chat = f"chat-{number % _CHATS}"
        text = next((word for word in ("fail", "later") if self._chance.random() < 0.1), f"hello {number}")
        channel, kind = (PAGER, "message") if number % 4 == 0 else (SHOP, "message")
        if number % 7 == 1:
            channel, kind, text = SHOP, "question", f"remember that my number is {number}"
        if number % 23 == 3:
            channel, kind = SHOP, "hush"
        return channel, {
            "account": "default",
            "chat": chat,
            "kind": kind,
            "principal": {"id": STRANGER if number % 33 == 5 else chat},
            "text": text,
            "occurred_at": datetime.now(UTC).isoformat(),
        }

    async def _post(self, url: str, event_id: str, event: dict[str, Any]) -> None:
        body, seconds = json.dumps(event).encode(), int(datetime.now(UTC).timestamp())
        headers = {
            "content-type": "application/json",
            "webhook-id": event_id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": sign([KEY], event_id, seconds, body),
        }
        async with self._http.post(url, data=body, headers=headers) as answer:
            self.posted += answer.ok

    async def _take(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.taken += 1
        luck = self._chance.random()
        if luck < 0.02:
            return web.Response(status=500)
        if luck < 0.04:
            return web.Response(status=429, headers={"Retry-After": "1"})
        if luck < 0.05:
            return web.Response(status=403)
        await asyncio.sleep(self._chance.expovariate(50))
        return web.json_response({"id": f"message-{self.taken}"})
