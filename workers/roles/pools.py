"""A pool that a worker is given must lead where its settings do: runs and conversations share one database."""

from schemas.errors import Misconfigured
from workers.postgres.database import Database
from workers.postgres.retrying import through_outages
from workers.postgres.sql import load

READ_PLACE = load(__package__, "read_place")


class DifferentDatabases(Misconfigured):
    """The pool that a worker was given leads to another database than its settings."""

    def __init__(self) -> None:
        super().__init__(
            "the pool that was given and PARLEY_DATABASE_URL lead to two databases: runs, leases and conversations "
            "must be in one"
        )


async def require_one_database(given: Database, own: Database) -> None:
    """Waits through an outage. Raises DifferentDatabases."""
    if await _place(given) != await _place(own):
        raise DifferentDatabases


async def _place(database: Database) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await through_outages(lambda: database.fetch(READ_PLACE))]
