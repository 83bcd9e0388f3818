"""Clocks, moved: the one of the database, which decides (`parley_now()`; a test may shift its own), and a process's."""

import shutil
from datetime import timedelta
from typing import Final

import pytest

from workers.postgres.database import Database

# faketime names a semaphore by its process id, leaves it behind when it is killed, and starts only where none is.
_FAKETIME: Final = (
    "rm -f /dev/shm/sem.faketime_sem_$$ /dev/shm/faketime_shm_$$;"
    ' exec faketime --exclude-monotonic -m -f "$0" "$@"'
)


def with_clock_off(seconds: int) -> tuple[str, ...]:
    """What to put before a command so that its process sees another time of day; its monotonic clock stays.

    The test is skipped where faketime is not installed."""
    if shutil.which("faketime") is None:
        pytest.skip("faketime is not installed")
    return ("sh", "-c", _FAKETIME, f"{seconds:+d}s")


async def shift_clock(database: Database, by: timedelta) -> None:
    """Move `parley_now()` by `by` from wherever it stands; the real clock goes on behind it."""
    row = await database.fetchrow("select parley_now() - now() as ahead")
    assert row is not None
    seconds = (row["ahead"] + by).total_seconds()
    await database.execute(
        "create or replace function parley_now() returns timestamptz language sql stable parallel safe as"
        f" 'select now() + interval ''{seconds} seconds'''"
    )
