"""Where a process spends its time: sampled by py-spy from outside, summed up by function.

Only threads that hold the interpreter's lock are sampled, so that shares are of Python's own time: waiting
does not count, and what a C library does shows as its caller.
"""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

SECONDS = 10
RATE = 200
TOP = 25


class NoProfiler(RuntimeError):
    """py-spy is not installed: `pip install py-spy`."""


def profiler() -> str:
    """The command. Raises NoProfiler."""
    found = shutil.which("py-spy")
    if found is None:
        raise NoProfiler("pip install py-spy")
    return found


class Profile:
    """Samples process `pid` for at most 10 s in the background; stacks go to `path`, one line each with a count."""

    def __init__(self, pid: int, path: Path) -> None:
        self._path = path
        self._process = subprocess.Popen(
            [
                *(profiler(), "record", "--pid", str(pid), "--output", str(path), "--format", "raw"),
                *("--rate", str(RATE), "--duration", str(SECONDS), "--gil", "--function"),
            ],
            stdout=subprocess.DEVNULL,
        )

    def finish(self) -> str:
        """Wait for the end and return the two tables as text."""
        self._process.wait()
        with self._path.open(encoding="utf-8") as lines:
            return table(lines)


def table(lines: Iterable[str]) -> str:
    """The functions with most samples of their own, and with most samples below them, of collapsed stacks."""
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    total = 0
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        total += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            below[frame] += int(count)
    if not total:
        return "no samples"
    parts = [("self", own), ("cumulative", below)]
    return "\n\n".join("\n".join([name, *_rows(counts, total)]) for name, counts in parts)


def _rows(counts: Counter[str], total: int) -> list[str]:
    return [f"{count / total:6.1%}  {frame}" for frame, count in counts.most_common(TOP)]
