"""A local HTTP receiver that misbehaves when told to: the far end of the webhook channel."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from aiohttp import web

Behaviour = Literal["accept", "store_then_drop", "drop", "stall", "break_off"] | int


@dataclass
class Receiver:
    """`script` is used up in order, then everything is accepted; `stored` is by `webhook-id`."""

    url: str = ""
    script: deque[tuple[Behaviour, Mapping[str, str]]] = field(default_factory=deque)
    requests: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    _stalled: asyncio.Event = field(default_factory=asyncio.Event)

    def do(self, *behaviours: Behaviour, headers: Mapping[str, str] | None = None) -> None:
        """Behave so at the next requests."""
        self.script.extend((behaviour, headers or {}) for behaviour in behaviours)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append(({name.lower(): value for name, value in request.headers.items()}, body))
        behaviour, headers = self.script.popleft() if self.script else ("accept", {})
        key = request.headers["webhook-id"]
        if behaviour in ("accept", "store_then_drop", "break_off", "stall"):
            self.stored[key] = body
        match behaviour:
            case int():
                return web.Response(status=behaviour, headers=headers)
            case "stall":
                await self._stalled.wait()
            case "drop" | "store_then_drop":
                assert request.transport is not None
                request.transport.abort()
            case "break_off":
                answer = web.StreamResponse(headers={"content-length": "100"})
                await answer.prepare(request)
                await answer.write(b'{"id":')
                assert request.transport is not None
                request.transport.abort()
                return answer
            case "accept":
                pass
        return web.json_response({"id": f"p-{key}"})

    def release(self) -> None:
        self._stalled.set()


@asynccontextmanager
async def a_receiver() -> AsyncIterator[Receiver]:
    """One on a free port of the loopback."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook/{secret}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    receiver.url = f"http://127.0.0.1:{port}/hook/s3cr3t?token=t0k3n"
    try:
        yield receiver
    finally:
        receiver.release()
        await runner.cleanup()
