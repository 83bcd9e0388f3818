"""Worker processes as they are shipped, `parley serve` with all roles, from a given copy of the tree."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tests.support.kafka.broker import LOOPBACK, free_ports
from tests.support.waiting import wait_until

READY_WITHIN = timedelta(seconds=90)
GONE_WITHIN = timedelta(seconds=20)
TARGET = "tests.replicas.app:app"


class WorkerEnded(Exception):
    """A worker ended by itself; the text carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One process; `port` serves its health."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self.process.kill()
        self.process.wait()

    def wait(self, within: timedelta = GONE_WITHIN) -> int:
        """Its return code once it has ended."""
        return self.process.wait(within.total_seconds())

    def wait_until_ready(self) -> None:
        wait_until(f"{self.name} is ready", self._is_ready, READY_WITHIN)

    def _is_ready(self) -> bool:
        if not self.is_running():
            told = self.log.read_text("utf-8", "replace")[-3000:]
            raise WorkerEnded(f"{self.name} ended with code {self.process.returncode}\n{told}")
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/readyz", timeout=2):
                return True
        except (urllib.error.URLError, TimeoutError, OSError):
            return False


@dataclass(slots=True)
class Fleet:
    """The workers of one scenario; `settings` are environment variables that all of them have."""

    tree: Path
    folder: Path
    settings: Mapping[str, str]
    workers: list[Worker] = field(default_factory=list)

    def start(self) -> Worker:
        """Start another worker; it is ready some time later."""
        name, [port] = f"worker-{len(self.workers) + 1}", free_ports(1)
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*_tied(), *self._command(port)],
                cwd=self.tree,
                env={**os.environ, **self.settings, "PYTHONPATH": str(self.tree)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.workers.append(Worker(name, process, port, log))
        return self.workers[-1]

    def running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_running()]

    def check(self) -> None:
        """Raises WorkerEnded where one ended with an error."""
        for worker in self.workers:
            if worker.process.poll() not in (None, 0, -signal.SIGKILL):
                told = worker.log.read_text("utf-8", "replace")[-3000:]
                raise WorkerEnded(f"{worker.name} ended with code {worker.process.returncode}\n{told}")

    def close(self) -> None:
        """Kill what still runs."""
        for worker in self.workers:
            worker.kill()

    def _command(self, port: int) -> list[str]:
        parley = Path(sys.executable).with_name("parley")
        return [str(parley), "serve", TARGET, "--port", str(port)]


def package_in(tree: Path) -> Path:
    """Where a worker of `tree` takes its code from, as the interpreter itself says."""
    said = subprocess.run(
        [sys.executable, "-c", "import workers.turns, sys; print(workers.turns.__file__)"],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(said.stdout.strip()).parents[1]


def _tied() -> list[str]:
    """A command's prefix that ends it with the thread that started it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
