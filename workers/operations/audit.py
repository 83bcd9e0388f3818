"""Every act of an operator leaves one row that says who did what to which thing; it commits with the act."""

from collections.abc import Mapping

from schemas import jsonio
from workers.postgres.database import Connection
from workers.postgres.sql import load

INSERT_AUDIT = load(__package__, "insert_audit")


async def record(tx: Connection, actor: str, act: str, subject: str, detail: Mapping[str, object]) -> None:
    """Write the row in the caller's transaction; `detail` holds ids, states and counts, never a text or a key."""
    await tx.execute(INSERT_AUDIT, actor, act, subject, jsonio.dumps(dict(detail)).decode())
