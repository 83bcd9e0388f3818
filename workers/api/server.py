"""uvicorn inside the worker's own event loop: no signal handlers, no access log, a bound stop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta

import uvicorn
from fastapi import FastAPI

from schemas.errors import Misconfigured
from workers.api.closing import Closing


class AddressTaken(Misconfigured):
    """Nobody can listen at `host:port`; `detail` is the system's reason."""

    def __init__(self, host: str, port: int, detail: str) -> None:
        super().__init__(f"cannot listen at {host}:{port}: {detail}")
        self.host, self.port, self.detail = host, port, detail


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the worker's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


class ApiServer:
    """Serves one application; `start` once, `stop` once."""

    def __init__(self, app: FastAPI, grace: timedelta = timedelta(seconds=5)) -> None:
        self._app = app
        self._grace = grace
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (the system's choice for 0). Raises AddressTaken."""
        listening = _listen(host, port)
        config = uvicorn.Config(
            self._app,
            access_log=False,
            log_config=None,
            log_level="warning",
            lifespan="on",
            loop="none",
            server_header=False,
            h11_max_incomplete_event_size=32 * 1024,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=max(1, int(self._grace.total_seconds())),
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([listening]), name="http")
        up = asyncio.create_task(self._server.up.wait(), name="http up")
        await asyncio.wait((up, self._serving), return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if not self._server.started:
            listening.close()
            await self._serving
            raise AddressTaken(host, port, "the application did not start")
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Take no new connection, end the event streams, let requests finish within the grace."""
        if self._server is None or self._serving is None:
            return
        Closing.of(self._app).begin()
        self._server.should_exit = True
        await self._serving
        self._server = self._serving = None


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=_family(host), backlog=512)
    except OSError as error:
        raise AddressTaken(host, port, error.strerror or str(error)) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
