"""Waiting for a condition, bounded, and a failure that says what was there instead."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

T = TypeVar("T")

EVERY_SECONDS: Final = 0.02


class NotInTime(AssertionError):
    """What a test waits for did not happen."""


async def wait_for(
    what: str,
    holds: Callable[[], Awaitable[T]],
    within: timedelta,
    instead: Callable[[], Awaitable[str]],
) -> T:
    """The first true answer of `holds`; raises NotInTime with `what` and, asked once at the end, `instead`."""
    deadline = time.monotonic() + within.total_seconds()
    while not (answer := await holds()):
        if time.monotonic() > deadline:
            raise NotInTime(f"{what}: not within {within.total_seconds():g} s; {await instead()}")
        await asyncio.sleep(EVERY_SECONDS)
    return answer
