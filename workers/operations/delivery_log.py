"""One delivery with everything that was tried: each send, each question to the channel, each act of an operator."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from workers.operations.errors import NotFound
from workers.postgres.database import Database
from workers.postgres.sql import load

READ_DELIVERY = load(__package__, "read_delivery")
READ_DELIVERY_LOG = load(__package__, "read_delivery_log")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of the attempt log; `late` came after the attempt was fenced off."""

    attempt: int
    kind: str
    outcome: str
    detail: str | None
    provider_id: str | None
    late: bool
    started_at: datetime | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class ShownDelivery:
    """A delivery; of its text only the size."""

    delivery_id: UUID
    key: str
    reply_key: str
    chunk: int
    run_id: UUID
    agent: str
    recalled: bool
    channel: str
    account: str
    address: str
    state: str
    reason: str | None
    attempt: int
    failures: int
    possible_duplicate: bool
    provider_id: str | None
    body_bytes: int
    created_at: datetime
    due_at: datetime
    first_sent_at: datetime | None
    finished_at: datetime | None


async def show_delivery(database: Database, delivery_id: UUID) -> tuple[ShownDelivery, list[Attempt]]:
    """The delivery and its attempt log. Raises NotFound."""
    async with database.acquire() as connection:
        row = await connection.fetchrow(READ_DELIVERY, delivery_id)
        if row is None:
            raise NotFound("delivery", str(delivery_id), "`parley deliveries list` shows the newest")
        log = await connection.fetch(READ_DELIVERY_LOG, delivery_id)
    return ShownDelivery(*row), [Attempt(*line) for line in log]
