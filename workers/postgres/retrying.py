"""Work that may be done again goes on through conflicts and outages of the database, with backoff and jitter."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import structlog
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_delay,
    stop_never,
    wait_random_exponential,
)

from workers.postgres.failures import is_retryable

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def through_outages(work: Callable[[], Awaitable[T]], patience: timedelta | None = None) -> T:
    """What `work` returns in the end; raises its failure once it is final, or `patience` (None: endless) is over.

    A commit whose outcome stayed unknown is done again, so `work` must recognize what it did.
    """
    async for attempt in AsyncRetrying(
        retry=retry_if_exception(is_retryable),
        wait=wait_random_exponential(multiplier=0.02, max=2),
        stop=stop_never if patience is None else stop_after_delay(patience.total_seconds()),
        before_sleep=_say_that_it_waits,
        reraise=True,
    ):
        with attempt:
            return await work()
    raise AssertionError("unreachable: the last attempt re-raises")


def _say_that_it_waits(state: RetryCallState) -> None:
    tries = state.attempt_number
    if tries & (tries - 1) == 0 and state.outcome is not None:
        # At powers of two only, so that a long outage stays a few lines.
        log.warning("batch.retrying", tries=tries, error=type(state.outcome.exception()).__name__)
