"""An act upon a conversation waits until no turn is active there, or asks the active turn to stop first.

Meanwhile claims of that conversation are held: the run behind the active turn is put off by two seconds, again and
again. Nothing has to be taken back. However the waiting ends - done, given up, interrupted, killed, its machine gone -
the hold lapses within those two seconds. A run that is admitted and claimed between two looks is waited for as well.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Literal, TypeVar
from uuid import UUID

from workers.operations.errors import TurnActive
from workers.operations.runs import cancel_runs
from workers.postgres.database import Database
from workers.postgres.sql import load

HOLD_CLAIMS = load(__package__, "hold_claims")

T = TypeVar("T")
WhenActive = Literal["refuse", "wait", "cancel"]
"""What to do about an active turn: refuse the act, wait for the turn's end, or cancel it and wait for that."""

HOLD: Final = timedelta(seconds=2)
LOOK_EVERY_SECONDS: Final = 0.1
WITHIN: Final = timedelta(seconds=60)


async def once_quiet(
    database: Database,
    act: Callable[[], Awaitable[T]],
    actor: str,
    when_active: WhenActive,
    within: timedelta,
    waiting: Callable[[UUID], None],
) -> T:
    """The result of `act`, done once it is not refused for an active turn any more.

    `waiting` is told each run that is waited for, once. Raises TurnActive at once for "refuse", else after `within`.
    """
    give_up_at = time.monotonic() + within.total_seconds()
    named: set[UUID] = set()
    while True:
        try:
            return await act()
        except TurnActive as active:
            if when_active == "refuse":
                raise
            if time.monotonic() >= give_up_at:
                raise _not_in_time(active, within) from None
            lane_id, run_id = active.lane_id, active.run_id
        await database.execute(HOLD_CLAIMS, lane_id, HOLD)
        if run_id not in named:
            named.add(run_id)
            waiting(run_id)
            if when_active == "cancel":
                await cancel_runs(database, [run_id], actor)
        await asyncio.sleep(LOOK_EVERY_SECONDS)


def _not_in_time(active: TurnActive, within: timedelta) -> TurnActive:
    advice = (
        f"it did not end within {within.total_seconds():g} s, and its claims are no longer held; try again"
    )
    return TurnActive(active.act, active.lane_id, active.run_id, advice)
