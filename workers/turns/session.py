"""A worker session: one lease row, renewed from its own thread, judged by the database clock.

    open -> renewed ... -> ended (drain)
                       \\-> lost  (a takeover marked it dead: every turn of it belongs to somebody else now)

The thread needs nothing of the event loop, so a busy loop does not cost the lease. A loop that stands still for
longer than the lease ends the process instead: its turns would be taken over anyway. The thread counts its own
ticks, so a process that was stopped and continued is not mistaken for a stuck loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import psycopg
import structlog

from schemas.run import new_uuid7
from workers.postgres.database import Database
from workers.postgres.sql import load

OPEN_SESSION = load(__package__, "open_session")
RENEW_SESSION = load(__package__, "renew_session")
END_SESSION = load(__package__, "end_session")

DEFAULT_LEASE = timedelta(seconds=15)
EXIT_STUCK_LOOP = 70
_TICK = 0.5
_ANSWER_SECONDS = 6.0
# Bounded everywhere, so that a network that swallows packets cannot hold the thread.
_CONNECTION: Final[dict[str, Any]] = {
    "application_name": "parley-session",
    "connect_timeout": 5,
    "tcp_user_timeout": 5000,
    "options": "-c statement_timeout=5000 -c lock_timeout=5000",
}

log = structlog.get_logger(__name__)


def _cut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


def _leave_process() -> None:
    os._exit(EXIT_STUCK_LOOP)


class WorkerSession:
    """The lease of this process. `start()` opens it, `lost` is set when it is gone, `end()` closes it."""

    def __init__(
        self,
        url: str,
        *,
        lease_for: timedelta = DEFAULT_LEASE,
        agents: Sequence[str] = (),
        renewed: Callable[[], None] = lambda: None,
        leave_process: Callable[[], None] | None = None,
    ) -> None:
        self.id: UUID = new_uuid7()
        self.lease_for = lease_for
        self.lost = asyncio.Event()
        self._url = url
        self._agents = list(agents)
        self._worker = f"{socket.gethostname()}:{os.getpid()}"
        self._renewed = renewed
        self._leave_process = leave_process or _leave_process
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._opened = asyncio.Event()
        self._thread = threading.Thread(target=self._renew, name="worker-session", daemon=True)
        self._beats = 0
        self._last_renewal = 0.0

    async def start(self, within: timedelta = timedelta(seconds=30)) -> None:
        """Open the session; raises TimeoutError where the database does not let it in time."""
        self._thread.start()
        async with asyncio.timeout(within.total_seconds()):
            await self._opened.wait()
        log.info("session.opened", session_id=str(self.id), worker=self._worker)

    @property
    def fresh(self) -> bool:
        """True while the last renewal is younger than the lease, by this process's monotonic clock."""
        return (
            not self.lost.is_set() and time.monotonic() - self._last_renewal < self.lease_for.total_seconds()
        )

    async def end(self, database: Database) -> None:
        """Stop renewing and mark the session ended."""
        await self.stop_renewing()
        await database.execute(END_SESSION, self.id)
        log.info("session.ended", session_id=str(self.id))

    async def stop_renewing(self) -> None:
        """Stop the thread; the lease then runs out by itself."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join, 5)

    def _renew(self) -> None:
        connection: psycopg.Connection | None = None
        opened = False
        next_renewal = 0.0
        silent_ticks = 0
        seen_beats = -1
        while not self._stop.is_set():
            silent_ticks, seen_beats = self._watch_loop(silent_ticks, seen_beats)
            if time.monotonic() >= next_renewal:
                try:
                    connection = connection or psycopg.connect(self._url, autocommit=True, **_CONNECTION)
                    if not opened:
                        self._execute(connection, OPEN_SESSION)
                        opened = True
                        self._call(self._opened.set)
                    elif self._execute(connection, RENEW_SESSION) == 0:
                        self._call(self._mark_lost)
                        return
                    self._last_renewal = time.monotonic()
                    self._renewed()
                    next_renewal = time.monotonic() + self.lease_for.total_seconds() / 3
                except psycopg.Error as error:
                    log.warning(
                        "session.not_renewed",
                        error=type(error).__name__,
                        sqlstate=error.sqlstate,
                        advice="check that PARLEY_DATABASE_URL names a database that answers",
                    )
                    self._discard(connection)
                    connection = None
                    next_renewal = time.monotonic() + min(1.0, self.lease_for.total_seconds() / 6)
            self._stop.wait(min(_TICK, self.lease_for.total_seconds() / 10))
        self._discard(connection)

    def _watch_loop(self, silent_ticks: int, seen_beats: int) -> tuple[int, int]:
        """Ask the event loop for a sign of life; end the process when it gave none for a whole lease."""
        if self._beats == seen_beats:
            silent_ticks += 1
        else:
            silent_ticks, seen_beats = 0, self._beats
            self._call(self._beat)
        if silent_ticks * min(_TICK, self.lease_for.total_seconds() / 10) > self.lease_for.total_seconds():
            log.error("session.loop_stuck", session_id=str(self.id), lease_s=self.lease_for.total_seconds())
            self._leave_process()
        return silent_ticks, seen_beats

    def _execute(self, connection: psycopg.Connection, statement: str) -> int:
        # The driver waits for ever for an answer on a connection that something in between keeps up.
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            cut = threading.Timer(_ANSWER_SECONDS, _cut, [line])
            cut.daemon = True
            cut.start()
            try:
                cursor = connection.execute(
                    statement.encode(),
                    {
                        "id": self.id,
                        "worker": self._worker,
                        "lease": self.lease_for.total_seconds(),
                        "agents": self._agents,
                    },
                )
            finally:
                cut.cancel()
        return cursor.rowcount

    def _discard(self, connection: psycopg.Connection | None) -> None:
        if connection is not None:
            connection.close()

    def _call(self, callback: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _beat(self) -> None:
        self._beats += 1

    def _mark_lost(self) -> None:
        log.error("session.lost", session_id=str(self.id), worker=self._worker)
        self.lost.set()
