"""Waiting for a condition, bounded: no test sleeps for time to pass."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

T = TypeVar("T")

PATIENCE = timedelta(seconds=15)
EVERY_SECONDS = 0.02


class NeverHappened(AssertionError):
    """A condition did not hold within its time."""


def wait_until(what: str, holds: Callable[[], T], within: timedelta = PATIENCE) -> T:
    """Ask `holds` until it answers something true, and return that; `what` names it when it never does."""
    deadline = time.monotonic() + within.total_seconds()
    while not (answer := holds()):
        if time.monotonic() > deadline:
            raise NeverHappened(f"{what}: not within {within.total_seconds():g} s, last answer {answer!r}")
        time.sleep(EVERY_SECONDS)
    return answer


@overload
async def eventually(what: str, holds: Callable[[], Awaitable[T]], within: timedelta = PATIENCE) -> T: ...
@overload
async def eventually(what: str, holds: Callable[[], T], within: timedelta = PATIENCE) -> T: ...
async def eventually(what: str, holds: Callable[[], Any], within: timedelta = PATIENCE) -> Any:
    """As `wait_until`, while the event loop goes on; `holds` may be a function or a coroutine function."""
    deadline = time.monotonic() + within.total_seconds()
    while not (answer := await _ask(holds)):
        if time.monotonic() > deadline:
            raise NeverHappened(f"{what}: not within {within.total_seconds():g} s, last answer {answer!r}")
        await asyncio.sleep(EVERY_SECONDS)
    return answer


async def _ask(holds: Callable[[], Any]) -> Any:
    answer = holds()
    if inspect.isawaitable(answer):
        return await answer
    return answer
