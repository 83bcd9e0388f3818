"""Wake-ups between roles: lossy hints over LISTEN and NOTIFY on one direct connection.

A hint may be lost and may come for nothing; every loop also polls, so correctness never needs one. Hints within
one process are set directly, those to other processes are gathered into one NOTIFY per round.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta

import asyncpg
import structlog

LOOK_EVERY_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Wake:
    """An event that many may set and one loop waits for, bounded by a poll interval with jitter."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, at_most: timedelta) -> None:
        """Return when set, or after a random 50 to 100 per cent of `at_most`; then it is clear again."""
        seconds = at_most.total_seconds() * random.uniform(0.5, 1.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class Hints:
    """Named wake-ups, in this process and, while `run()` runs, to and from the others of the same database."""

    CHANNEL = "parley_hints"

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._wakes: dict[str, list[Wake]] = {}
        self._outgoing: set[str] = set()
        self._something_to_send = asyncio.Event()

    def waiter(self, *names: str) -> Wake:
        """A new wake-up that every hint of these names sets."""
        wake = Wake()
        for name in names:
            self._wakes.setdefault(name, []).append(wake)
        return wake

    def hint(self, name: str) -> None:
        """Wake this process's waiters of `name` now and the others' soon."""
        self._wake(name)
        self._outgoing.add(name)
        self._something_to_send.set()

    def _wake(self, name: str) -> None:
        for wake in self._wakes.get(name, ()):
            wake.set()

    async def run(self, reconnect_after: timedelta = timedelta(seconds=1)) -> None:
        """Exchange hints with other processes until cancelled; a lost connection is made again."""
        while self._url is not None:
            try:
                await self._exchange(self._url)
            except Exception as error:
                # Whatever it is, nobody needs a hint: a worker is not to end over one.
                log.warning("hints.disconnected", error=type(error).__name__)
            await asyncio.sleep(reconnect_after.total_seconds())

    async def _exchange(self, url: str) -> None:
        connection = await asyncpg.connect(
            url, timeout=10, server_settings={"application_name": "parley-hints"}
        )
        own_pid = connection.get_server_pid()
        lost = asyncio.Event()

        def received(_connection: object, pid: int, _channel: str, payload: object) -> None:
            if pid != own_pid:
                for name in str(payload).split(","):
                    self._wake(name)

        def terminated(_connection: object) -> None:
            lost.set()
            self._something_to_send.set()

        connection.add_termination_listener(terminated)
        try:
            await connection.add_listener(self.CHANNEL, received)
            while not lost.is_set() and not connection.is_closed():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_SECONDS):
                        await self._something_to_send.wait()
                self._something_to_send.clear()
                names, self._outgoing = self._outgoing, set()
                if names and not lost.is_set():
                    await connection.execute(
                        "select pg_notify($1, $2)", self.CHANNEL, ",".join(sorted(names)), timeout=5
                    )
                # At most one NOTIFY in five milliseconds: a NOTIFY takes a lock that all commits share.
                await asyncio.sleep(0.005)
        finally:
            with contextlib.suppress(Exception):
                await connection.close(timeout=2)
