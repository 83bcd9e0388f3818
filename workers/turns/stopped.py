"""A process that stops between two messages of one statement holds its locks no longer than one that stops between two
statements.

The server's `idle_in_transaction_session_timeout` sees the latter only. Whoever recovers looks for the former.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import structlog

from workers.postgres.database import Database
from workers.postgres.sql import load

END_STOPPED_CLIENTS = load(__package__, "end_stopped_clients")
STOPPED_FOR: Final = timedelta(seconds=5)

log = structlog.get_logger(__name__)


async def end_stopped_clients(
    database: Database, stopped_for: timedelta = STOPPED_FOR, application_name: str = "parley"
) -> int:
    """End the database sessions of clients that stopped in mid-statement; returns how many there were."""
    rows = await database.fetch(END_STOPPED_CLIENTS, application_name, stopped_for)
    for row in rows:
        log.warning("session.stopped_client_ended", backend_pid=row["pid"])
    return len(rows)
