"""Embedded Postgres and Kafka live in a process of their own: a worker killed with -9 leaves them running.

The process writes `services.json` into its data directory when both answer, and says the same on one line
of its output. Postgres keeps its data in the directory; the broker keeps records in memory only, so a restart
of the services loses what was published and not yet admitted.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from workers.embedded.installed import require_embedded

if TYPE_CHECKING:
    from workers.embedded.mock_kafka import MockKafka

log = logging.getLogger(__name__)

STATE_FILE = "services.json"
_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Running:
    """Where the services answer; `pid` is the process that owns them."""

    database_url: str
    bootstrap: str
    pid: int

    @classmethod
    def read(cls, line: str) -> "Running":
        """From the JSON of the state file or of the ready line."""
        return cls(**json.loads(line))


class EmbeddedServices:
    """Both services in this process; used by `python -m workers.embedded`."""

    def __init__(self, data: Path) -> None:
        from workers.embedded.postgres import EmbeddedPostgres

        self._data = data
        self._postgres = EmbeddedPostgres(data / "postgres")
        self._kafka: MockKafka | None = None

    def __enter__(self) -> Running:
        from workers.embedded.mock_kafka import MockKafka

        self._data.mkdir(parents=True, exist_ok=True)
        database_url = self._postgres.start()
        try:
            self._kafka = MockKafka()
        except BaseException:
            self._postgres.stop()
            raise
        running = Running(database_url, self._kafka.bootstrap, os.getpid())
        written = self._data / f"{STATE_FILE}.new"
        written.write_text(json.dumps(asdict(running)), encoding="utf-8")
        written.replace(self._data / STATE_FILE)
        return running

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._data / STATE_FILE).unlink(missing_ok=True)
        if self._kafka is not None:
            self._kafka.close()
        self._postgres.stop()


def serve(data: Path, *, die_with_parent: bool = False) -> None:
    """Run until SIGTERM or SIGINT (or the parent's death); writes one JSON line to stdout when ready."""
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    if die_with_parent:
        _follow_parent()
    with EmbeddedServices(data) as running:
        sys.stdout.write(json.dumps(asdict(running)) + "\n")
        sys.stdout.flush()
        signal.sigwait(stops)


def _follow_parent() -> None:
    """Ask the kernel for SIGTERM when the parent thread's process ends (Linux)."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def embedded_services(data_dir: Path | None = None) -> AsyncIterator[Running]:
    """Spawn the services, wait until they answer, stop them at the end; no directory: all thrown away.

    Raises EmbeddedNotInstalled.
    """
    require_embedded()
    data = data_dir or Path(tempfile.mkdtemp(prefix="parley-"))
    if data_dir is None:
        log.warning(
            "no database is configured: this one is thrown away at the end, a restart loses history and notes, and "
            "replicas do not share them"
        )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "workers.embedded",
        "--data",
        str(data),
        "--die-with-parent",
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_READY_SECONDS):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"the embedded services ended at start with code {await process.wait()}")
        yield Running.read(line.decode())
    finally:
        await _end(process)
        if data_dir is None:
            shutil.rmtree(data, ignore_errors=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
