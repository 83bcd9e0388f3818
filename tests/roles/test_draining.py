"""What overruns a drain's deadline is left behind by one line, not by a traceback."""

import asyncio
import gc
from datetime import timedelta
from typing import Any

from workers.roles.draining import Deadline


async def test_parts_that_are_left_behind_together_leave_no_traceback() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    began = asyncio.Event()

    async def never_ends() -> None:
        began.set()
        await asyncio.Event().wait()

    deadline = Deadline(timedelta(0))
    await deadline.bounded("parts", asyncio.gather(never_ends(), return_exceptions=True))
    assert began.is_set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()

    assert told == []
