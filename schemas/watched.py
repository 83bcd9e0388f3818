"""A file that is read again when it changes, without a task or a thread: whoever uses it asks now and then."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

STAT_INTERVAL_S: Final = 1.0


class WatchedFile:
    """Looks at `path` at most once in `STAT_INTERVAL_S` of `clock` (monotonic seconds)."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._next_look = clock() + STAT_INTERVAL_S
        self._seen = self._fingerprint()

    def changed(self) -> bool:
        """Whether the file is another than at the last look that said so; False between two looks."""
        if (now := self._clock()) < self._next_look:
            return False
        self._next_look = now + STAT_INTERVAL_S
        seen = self._fingerprint()
        if seen == self._seen:
            return False
        self._seen = seen
        return True

    def _fingerprint(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
