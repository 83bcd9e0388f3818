"""Child processes of a run: each says on its first line of output that it runs, and is gone when its block ends."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STOP_SECONDS = 40.0


class ChildEnded(RuntimeError):
    """A child ended before its time; `module` names it, its errors went to our own stderr."""

    def __init__(self, module: str, code: int | None) -> None:
        super().__init__(f"{module} ended with code {code}")
        self.module = module


@dataclass(frozen=True, slots=True)
class Child:
    """A running child; `said` is the JSON object of its first line."""

    module: str
    process: subprocess.Popen[bytes]
    said: dict[str, Any]

    def check(self) -> None:
        """Raises ChildEnded when it does not run any more."""
        if self.process.poll() is not None:
            raise ChildEnded(self.module, self.process.returncode)

    def cpu_seconds(self) -> float:
        """Processor time that it has used so far, user and system (Linux; 0 elsewhere)."""
        try:
            after_name = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        except OSError:
            return 0.0
        user, system = after_name.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """SIGTERM, and gone when this returns."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def child(module: str, *arguments: str) -> Iterator[Child]:
    """Run `python -m module arguments`, wait for its first line; ends with us, however we end (Linux)."""
    setpriv = shutil.which("setpriv")
    tied = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
    process = subprocess.Popen(
        [*tied, sys.executable, "-m", module, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            line = process.stdout.readline()
            if not line:
                raise ChildEnded(module, process.wait())
            running = Child(module, process, json.loads(line))
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
