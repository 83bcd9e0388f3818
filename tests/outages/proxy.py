"""A TCP proxy in a thread of its own that forwards, delays, refuses or swallows, as told, at once.

What was swallowed once stays so: a connection of a silent time never answers and never ends, as one that a
firewall forgot, while new ones work again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from tests.support.kafka.broker import LOOPBACK, free_ports

ANSWER_SECONDS: Final = 10.0
TIE: Final = 1e-6
"""Two chunks that are due at one moment keep their order by it."""


class _Way(asyncio.Protocol):
    """One end of a connection: what it reads goes to `other`, when `proxy` says so."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.other: _Way | None = None
        self.transport: asyncio.Transport | None = None
        self.dead = False
        self._waiting: list[bytes] = []
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._proxy.ways.add(self)

    def data_received(self, data: bytes) -> None:
        if self.dead:
            return
        if self.other is None:
            self._waiting.append(data)
        else:
            self._later(self.other.write, data)

    def join(self, other: _Way) -> None:
        self.other = other
        for data in self._waiting:
            self._later(other.write, data)
        self._waiting.clear()

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.dead and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None and not self.dead:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.ways.discard(self)
        if self.other is not None and not self.dead:
            self._later(self.other.close)

    def _later(self, act: Callable[..., None], *arguments: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._due = max(self._due + TIE, loop.time() + self._proxy.delay)
        if self._proxy.delay == 0.0 and self._due <= loop.time() + TIE:
            act(*arguments)
        else:
            loop.call_at(self._due, act, *arguments)


class Proxy:
    """Listens on `port` of loopback; `target` is a port of loopback, or the path of a Unix socket."""

    def __init__(self, target: int | Path) -> None:
        [self.port] = free_ports(1)
        self._target = target
        self._silent = False
        self.delay = 0.0
        self.ways: set[_Way] = set()
        self._dialling: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.forward()

    def forward(self, delay: float = 0.0) -> None:
        """Let all through, each chunk `delay` seconds late in either direction."""
        self._do(self._forward(delay))

    def refuse(self) -> None:
        """Break every connection and refuse new ones."""
        self._do(self._refuse())

    def swallow(self) -> None:
        """Accept connections, read what comes, and never say a word, on old ones as well."""
        self._do(self._swallow())

    def close(self) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_SECONDS)

    def _do(self, work: object) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]
        done.result(ANSWER_SECONDS)

    async def _forward(self, delay: float) -> None:
        self._silent, self.delay = False, delay
        if self._server is None:
            self._server = await self._loop.create_server(self._accepted, LOOPBACK, self.port)

    async def _swallow(self) -> None:
        await self._forward(0.0)
        self._silent = True
        for way in self.ways:
            way.dead = True

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for way in list(self.ways):
            if way.transport is not None:
                way.transport.abort()

    def _accepted(self) -> _Way:
        way = _Way(self)
        way.dead = self._silent
        if not self._silent:
            dialling = self._loop.create_task(self._dial(way))
            self._dialling.add(dialling)
            dialling.add_done_callback(self._dialling.discard)
        return way

    async def _dial(self, near: _Way) -> None:
        far = _Way(self)
        far.other = near
        try:
            if isinstance(self._target, Path):
                await self._loop.create_unix_connection(lambda: far, str(self._target))
            else:
                await self._loop.create_connection(lambda: far, LOOPBACK, self._target)
        except OSError:
            near.close()
            return
        near.join(far)
