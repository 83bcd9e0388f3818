"""Workers in processes of their own, to kill, stop and continue: `python -m tests.support.worker_process`.

The process reads one JSON `Life` a line and forks a worker for each, so that a life costs no imports; it answers with
the child's pid. Its children die with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

from tests.delivery.crashing_sender import FileLedger
from workers.app import App
from workers.channels.lab import LabChannel
from workers.channels.port import Outcome, Outgoing
from workers.kafka import bound_client_logs
from workers.kafka.settings import KafkaSettings
from workers.roles.settings import Role, Settings
from workers.roles.worker import Worker
from workers.telemetry.logging import configure

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Life:
    """One worker process. `app` is `module:function`, called with this Life; `dies_at` is `point` or `point#n`."""

    app: str
    folder: str
    name: str
    database_url: str
    bootstrap: str
    topics: tuple[str, str, str]
    group: str
    roles: tuple[Role, ...] = ("intake", "turns", "delivery")
    dies_at: str = ""
    capability: str = "idempotent"
    lease_seconds: float = 1.0
    session_timeout_seconds: float = 6.0
    transport_timeout_seconds: float = 0.5
    log_level: str = "INFO"
    listens: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        """Where the lab's peer keeps what it received; the same for all lives of a folder."""
        return Path(self.folder) / "ledger"

    @property
    def output(self) -> Path:
        """One JSON line a thing that the worker says of itself."""
        return Path(self.folder) / f"{self.name}.out"

    @property
    def log(self) -> Path:
        return Path(self.folder) / f"{self.name}.log"

    def note(self, word: str) -> None:
        """Append a word to what all lives of the folder noted, in one write."""
        with (Path(self.folder) / "notes").open("ab") as notes:
            notes.write(word.encode() + b"\n")

    def noted(self) -> list[str]:
        """What all lives of the folder noted, in order."""
        notes = Path(self.folder) / "notes"
        return notes.read_text("utf-8").splitlines() if notes.exists() else []

    def kafka(self) -> KafkaSettings:
        events, deliveries, dead = self.topics
        return replace(
            KafkaSettings.embedded(self.bootstrap).with_topics(
                events=events, deliveries=deliveries, dead=dead
            ),
            group_prefix=self.group,
            session_timeout=timedelta(seconds=self.session_timeout_seconds),
            commit_every=timedelta(milliseconds=100),
        )

    def settings(self) -> Settings:
        return Settings(
            database_url=self.database_url,
            kafka=self.kafka(),
            roles=frozenset(self.roles),
            lease_for=timedelta(seconds=self.lease_seconds),
            grace=timedelta(seconds=2),
            http_port=0,
        )


class Fate:
    """Counts the points that the worker passes, and kills the process at the one that was said."""

    def __init__(self, dies_at: str) -> None:
        self._point, _, number = dies_at.partition("#")
        self._number = int(number or 1)
        self._seen: Counter[str] = Counter()

    def __call__(self, point: str) -> None:
        self._seen[point] += 1
        if point == self._point and self._seen[point] == self._number:
            os.kill(os.getpid(), signal.SIGKILL)


class FatefulChannel(LabChannel):
    """A lab channel whose requests have points as well: `before request` and `accepted, not answered`."""

    fate: Fate

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        self.fate("before request")
        outcome = await super().send(outgoing, timeout)
        self.fate("accepted, not answered")
        return outcome


def main() -> None:
    """Fork a worker for every line until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        life = Life(**orjson.loads(line))
        pid = os.fork()
        if pid == 0:
            _become(life)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _become(life: Life) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(life.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for theirs, ours in ((null, 0), (log, 1), (log, 2)):
        os.dup2(theirs, ours)
    code = 1
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_live(life))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


async def _live(life: Life) -> None:
    configure(life.log_level)
    bound_client_logs()
    fate = Fate(life.dies_at)
    worker = Worker(_app_of(life, fate), life.settings(), reached=fate)
    if not life.listens:
        worker._hints._url = None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker._stop.set)
    await worker.start()
    with life.output.open("ab") as output:
        output.write(orjson.dumps({"port": worker.http_port}) + b"\n")
    await worker.run_until_stopped()


def _app_of(life: Life, fate: Fate) -> App:
    module, _, name = life.app.partition(":")
    app = cast(App, getattr(importlib.import_module(module), name)(life))
    for channel in app.channels.values():
        if isinstance(channel, FatefulChannel):
            channel.fate = fate
    return app


def ledger_of(life: Life) -> FileLedger:
    """What the lab's peer holds."""
    return FileLedger(life.ledger)


if __name__ == "__main__":
    # By its name as well, so that apps see the same classes; what a worker needs is loaded before a fork.
    from tests.support import worker_process

    importlib.import_module("tests.worker.apps")
    importlib.import_module("pydantic_ai")
    worker_process.main()
