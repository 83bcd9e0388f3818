"""`parley serve` in processes of their own, several beside each other, with exit codes and logs."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.support.kafka.broker import free_ports
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
WITHIN = timedelta(seconds=40)


@dataclass(frozen=True, slots=True)
class Replica:
    """One worker; its process leads a group of its own."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def answers(self, path: str = "/readyz") -> bool:
        """Whether its probe says yes."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def has_started(self) -> None:
        self._wait("it has started", "worker.started")

    def is_draining(self) -> None:
        self._wait("it drains", "worker.draining")

    def is_ready(self) -> None:
        wait_until(f"{self.name} is ready", lambda: self.process.poll() is not None or self.answers(), WITHIN)
        assert self.process.poll() is None, self.said()

    def _wait(self, what: str, word: str) -> None:
        wait_until(what, lambda: self.process.poll() is not None or word in self.said(), WITHIN)
        assert word in self.said(), self.said()

    def has_left_nothing(self) -> bool:
        """Whether its port is closed and no child of it is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return not self.answers("/healthz")
        return False


@contextmanager
def a_replica(
    folder: Path, environment: Mapping[str, str], name: str, app: str, roles: str = "intake,turns,delivery"
) -> Iterator[Replica]:
    """A worker of `module:attr` in `folder`; killed at the end if it still runs."""
    port = free_ports(1)[0]
    command = [sys.executable, "-c", "from workers.cli import main; main()", "serve", app, "--roles", roles]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={
                **surroundings,
                **environment,
                "PYTHONPATH": str(ROOT),
                "REPLICA": name,
                "PARLEY_HTTP_PORT": str(port),
            },
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Replica(name, process, port, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
