"""What an operator may do about deliveries: list, redeliver under the same key, mark sent, abandon; each
audited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.delivery import DeliveryState
from workers.delivery.journal import finish_replies
from workers.delivery.policy import ABANDONED, CHUNK_FAILED
from workers.operations import audit
from workers.operations.errors import ActRefused, NotFound
from workers.postgres.database import Connection, Database, Row
from workers.postgres.sql import load

_LIST_DELIVERIES = load(__package__, "list_deliveries")
_FIND_DELIVERY = load(__package__, "find_delivery")
_LOCK_LANE = load(__package__, "lock_delivery_lane")
_REDELIVER = load(__package__, "redeliver_delivery")
_MARK_SENT = load(__package__, "mark_delivery_sent")
_ABANDON = load(__package__, "abandon_delivery")
_MOST_LISTED: Final = 500


@dataclass(frozen=True, slots=True)
class ListedDelivery:
    """One delivery without its text."""

    delivery_id: UUID
    key: str
    run_id: UUID
    channel: str
    account: str
    address: str
    state: DeliveryState
    reason: str | None
    attempt: int
    failures: int
    possible_duplicate: bool
    provider_id: str | None
    due_at: datetime
    created_at: datetime
    first_sent_at: datetime | None
    finished_at: datetime | None


async def list_deliveries(
    db: Database,
    *,
    states: Sequence[DeliveryState] = (),
    channel: str | None = None,
    run_id: UUID | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[ListedDelivery]:
    """Newest first, at most `limit` (500); `before` is the last delivery of the page before. Empty
    `states`: all."""
    wanted = [state.value for state in states] or None
    rows = await db.fetch(_LIST_DELIVERIES, wanted, channel, run_id, before, min(limit, _MOST_LISTED))
    return [_listed(row) for row in rows]


async def redeliver(db: Database, delivery_id: UUID, actor: str) -> None:
    """Pending again under the same key, with fresh retries; later chunks that failed with it follow.

    From `failed` and `unknown` only. What was unknown goes marked as a possible duplicate. Raises
    DeliveryMissing, MoveRefused.
    """
    async with db.transaction() as tx:
        await _lock_lane(tx, delivery_id)
        moved = await tx.fetch(_REDELIVER, delivery_id, CHUNK_FAILED)
        await _conclude(tx, delivery_id, "redeliver", actor, moved)


async def mark_sent(db: Database, delivery_id: UUID, actor: str, provider_id: str | None = None) -> None:
    """The operator has seen it arrive. From `failed`, `unknown` and `uncertain`. Raises as `redeliver`
    does."""
    async with db.transaction() as tx:
        await _lock_lane(tx, delivery_id)
        moved = await tx.fetch(_MARK_SENT, delivery_id, provider_id)
        await _conclude(tx, delivery_id, "mark_sent", actor, moved)
        await _finish(tx, moved)


async def abandon(db: Database, delivery_id: UUID, actor: str) -> None:
    """Never send it (again). From `pending`, `uncertain` and `unknown`. Raises as `redeliver` does."""
    async with db.transaction() as tx:
        await _lock_lane(tx, delivery_id)
        moved = await tx.fetch(_ABANDON, delivery_id, ABANDONED, CHUNK_FAILED)
        await _conclude(tx, delivery_id, "abandon", actor, moved)
        await _finish(tx, moved)


async def _lock_lane(tx: Connection, delivery_id: UUID) -> None:
    if await tx.fetchrow(_LOCK_LANE, delivery_id) is None:
        raise NotFound("delivery", str(delivery_id), "list them to see which there are")


async def _conclude(tx: Connection, delivery_id: UUID, act: str, actor: str, moved: Sequence[Row]) -> None:
    """The audit of an act that moved something; raises ActRefused for one that did not."""
    row = await tx.fetchrow(_FIND_DELIVERY, delivery_id)
    if row is None or not moved:
        state = "gone" if row is None else row["state"]
        raise ActRefused(f"delivery {delivery_id}", f"it is {state}", f"{act} starts from other states")
    await audit.record(
        tx,
        actor,
        f"deliveries.{act}",
        str(delivery_id),
        {"key": row["key"], "state": row["state"], "attempt": row["attempt"], "moved": len(moved)},
    )


async def _finish(tx: Connection, moved: Sequence[Row]) -> None:
    recalled = [row for row in moved if row["recalled"]]
    await finish_replies(tx, [row["reply_key"] for row in recalled], [row["lane_id"] for row in recalled])


def _listed(row: Row) -> ListedDelivery:
    return ListedDelivery(
        delivery_id=row["id"],
        key=row["key"],
        run_id=row["run_id"],
        channel=row["channel"],
        account=row["account"],
        address=row["address"],
        state=DeliveryState(row["state"]),
        reason=row["reason"],
        attempt=row["attempt"],
        failures=row["failures"],
        possible_duplicate=row["possible_duplicate"],
        provider_id=row["provider_id"],
        due_at=row["due_at"],
        created_at=row["created_at"],
        first_sent_at=row["first_sent_at"],
        finished_at=row["finished_at"],
    )
