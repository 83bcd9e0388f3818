"""One deadline for a whole drain: every part of it gets what is left, and what overruns is left behind by name."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, Final

import structlog

RESERVE: Final = timedelta(seconds=6)
"""Of the grace period, at most so much is kept back from running turns, for letting go of them and for leaving."""
STOP_WITHIN: Final = timedelta(seconds=5)
"""What one part may take that only writes down what is over."""
_LEAST: Final = 0.2

log = structlog.get_logger(__name__)


class Deadline:
    """Counts down from the moment it is made, by the monotonic clock."""

    def __init__(self, grace: timedelta) -> None:
        self._ends_at = time.monotonic() + grace.total_seconds()
        self.reserve = min(RESERVE, grace / 3)

    @property
    def left(self) -> timedelta:
        """What is left; a fraction of a second at the least, so that what takes no time is still done."""
        return timedelta(seconds=max(_LEAST, self._ends_at - time.monotonic()))

    @property
    def left_to_work(self) -> timedelta:
        """What is left before the reserve, for turns and sends that are under way."""
        return max(timedelta(0), self.left - self.reserve)

    async def bounded(self, part: str, stopping: Awaitable[object], at_most: timedelta | None = None) -> None:
        """Wait for `stopping` until the deadline, or `at_most`; a failure or an overrun is logged and left behind."""
        seconds = min(self.left, at_most or self.left).total_seconds()
        task = asyncio.ensure_future(stopping)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            task.cancel()
            task.add_done_callback(hear)
            log.warning("worker.left_behind", part=part, error="TimeoutError")
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.warning("worker.left_behind", part=part, error=type(error).__name__)


def hear(ended: asyncio.Future[Any]) -> None:
    """Ask for the error of what was cancelled, for asyncio logs the traceback of one that nobody asks for."""
    if not ended.cancelled():
        ended.exception()
