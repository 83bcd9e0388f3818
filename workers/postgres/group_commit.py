"""Group commit inside the worker: whatever is ready goes in one batch, and nothing waits for a timer.

A caller submits one item and waits until the batch that holds it has committed. While a batch is in flight the
next one collects. A data error splits the batch until the offending item alone is refused; any other database
error tries the whole batch again, so an outage refuses nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from workers.postgres.failures import is_data_error
from workers.postgres.retrying import through_outages

T = TypeVar("T")
R = TypeVar("R")

GATHERING_TURNS = 4


async def apply_in_halves(
    items: Sequence[T],
    apply: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    patience: timedelta | None,
) -> list[R | Exception]:
    """Apply all `items` at once and give each one's result in order; a poison item gets its own data error.

    Retryable failures are tried again for at most `patience` (None: until cancelled); then, or on any other
    failure, every item of the batch gets that failure.
    """
    try:
        return list(await through_outages(lambda: apply(items), patience))
    except Exception as error:
        if not is_data_error(error):
            return [error] * len(items)
        if len(items) == 1:
            return [error]
    middle = len(items) // 2
    return [
        *await apply_in_halves(items[:middle], apply, patience),
        *await apply_in_halves(items[middle:], apply, patience),
    ]


class GroupCommit(Generic[T, R]):
    """Batches what many tasks submit at once; at most `flushers` batches are in flight."""

    def __init__(
        self,
        name: str,
        apply: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        *,
        max_batch: int = 500,
        flushers: int = 1,
        patience: timedelta | None = None,
        observe: Callable[[int, float], None] | None = None,
    ) -> None:
        """`observe` hears the size of each batch and the seconds until it had its answers."""
        self._name = name
        self._apply = apply
        self._max_batch = max_batch
        self._flushers = flushers
        self._patience = patience
        self._observe = observe
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing = 0
        self._closed = False

    async def submit(self, item: T) -> R:
        """Wait until `item`'s batch committed and return its result; raises its own failure, if it had one."""
        if self._closed:
            raise RuntimeError(f"the {self._name} queue is closed")
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        # A task that has taken its last look at the queue is still in `_tasks` when those it answered submit again.
        if self._flushing < self._flushers:
            self._flushing += 1
            task = asyncio.create_task(self._flush(), name=f"group-commit:{self._name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    @property
    def waiting(self) -> int:
        """Items that no batch has taken yet."""
        return len(self._waiting)

    async def close(self) -> None:
        """Take no more items and wait for those submitted."""
        self._closed = True
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _flush(self) -> None:
        try:
            await self._empty_queue()
        finally:
            self._flushing -= 1

    async def _empty_queue(self) -> None:
        while self._waiting:
            # A few turns of the loop let every task that is about to submit do so: bigger batches, and no timer.
            for _ in range(GATHERING_TURNS):
                await asyncio.sleep(0)
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_batch))]
            batch = [(item, future) for item, future in batch if not future.done()]
            if not batch:
                continue
            started = time.monotonic()
            results = await apply_in_halves([item for item, _ in batch], self._apply, self._patience)
            if self._observe is not None:
                self._observe(len(batch), time.monotonic() - started)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
