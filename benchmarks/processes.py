"""Child processes of a run: each says on its first line of output that it runs, and is gone when its block ends."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_SECONDS = 40.0


class ChildEnded(RuntimeError):
    """A child ended before its time; `module` names it, `told` is the end of what it logged."""

    def __init__(self, module: str, code: int | None, told: str) -> None:
        super().__init__(f"{module} ended with code {code}: {told}")
        self.module = module


@dataclass(frozen=True, slots=True)
class Child:
    """A running child; `said` is the JSON object of its first line."""

    module: str
    process: subprocess.Popen[bytes]
    said: dict[str, Any]
    log: Path

    def check(self) -> None:
        """Raises ChildEnded when it does not run any more."""
        if self.process.poll() is not None:
            raise ChildEnded(self.module, self.process.returncode, _end_of(self.log))

    def cpu_seconds(self) -> float:
        """Processor time that it has used so far, user and system (Linux; 0 elsewhere)."""
        try:
            after_name = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        except OSError:
            return 0.0
        user, system = after_name.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> int:
        """The most memory that it has had resident so far, in MB (Linux; 0 elsewhere)."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return 0
        [peak] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(peak.split()[1]) // 1024

    def stop(self) -> None:
        """SIGTERM, and gone when this returns."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


@contextmanager
def child(module: str, *arguments: str, folder: Path) -> Iterator[Child]:
    """Run `python -m module arguments`, wait for its first line; ends with us, however we end (Linux).

    What it logs goes to a file of its own in `folder`, as a service's log goes to a file or a pipe.
    """
    log = folder / f"{module}.{time.monotonic_ns()}.log"
    setpriv = shutil.which("setpriv")
    tied = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*tied, sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            line = process.stdout.readline()
            if not line:
                raise ChildEnded(module, process.wait(), _end_of(log))
            running = Child(module, process, json.loads(line), log)
            yield running
            running.stop()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def say(**facts: Any) -> None:
    """The first line of a child: what its parent waits for."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
