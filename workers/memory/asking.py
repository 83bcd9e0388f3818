"""The app's policy is asked with a time-out; one that answers without waiting needs no timer."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from inspect import iscoroutine
from types import coroutine
from typing import Any, TypeVar

from workers.memory.access import Access, Allow, Authorize, Deny

T = TypeVar("T")


async def ask(authorize: Authorize, access: Access, seconds: float) -> Allow | Deny:
    """The policy's answer. Raises what the policy raises, TimeoutError after `seconds`, TypeError for no answer."""
    asked: Any = authorize(access)
    answer: object
    if iscoroutine(asked):
        try:
            waits_for = asked.send(None)
        except StopIteration as done:
            answer = done.value
        else:
            async with asyncio.timeout(seconds):
                answer = await _go_on(asked, waits_for)
    else:
        async with asyncio.timeout(seconds):
            answer = await asked
    if not isinstance(answer, Allow | Deny):
        raise TypeError("authorize must answer Allow or Deny")
    return answer


@coroutine
def _go_on(begun: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """The rest of a coroutine whose first step was taken, and which waits for `waits_for`."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as thrown:
            step: Callable[[], Any] = partial(begun.throw, thrown)
        else:
            step = partial(begun.send, sent)
        try:
            waits_for = step()
        except StopIteration as done:
            result: T = done.value
            return result
