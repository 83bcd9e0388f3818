"""Replies enter the journal with the step that made them, in the caller's transaction.

A repeat under the same key changes nothing and returns the first. What a cancelled run still had to send is
abandoned here; what is under way is left to the reconciler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from schemas.text import clean
from workers.delivery.policy import ABANDONED
from workers.postgres.database import Connection
from workers.postgres.rows import as_rows, touched
from workers.postgres.sql import load

_INSERT_ADDRESSES = load(__package__, "insert_addresses")
_INSERT_DELIVERIES = load(__package__, "insert_deliveries")
_READ_JOURNALLED = load(__package__, "read_journalled")
_ABANDON_DELIVERIES = load(__package__, "abandon_deliveries")
_SETTLE_REPLIES = load(__package__, "settle_replies")
_RELEASE_GATE = load(__package__, "release_gate")


class NewDelivery(NamedTuple):
    """One chunk to send. `recalled` needs a lane that is a conversation; `text` is frozen as given here."""

    id: UUID
    key: str
    reply_key: str
    chunk: int
    run_id: UUID
    lane_id: int
    generation: int
    agent: str
    recalled: bool
    channel: str
    account: str
    address: str
    text: str
    traceparent: str | None = None


async def journal(tx: Connection, rows: Sequence[NewDelivery]) -> list[int]:
    """Write `rows` as pending, in order; the caller holds their lanes. Returns the address id of each."""
    if not rows:
        return []
    found = await _insert(tx, rows)
    if missing := [row for row in rows if row.key not in found]:
        places = sorted({(row.channel, row.account, row.address) for row in missing})
        await tx.execute(_INSERT_ADDRESSES, *map(list, zip(*places, strict=True)))
        await _insert(tx, missing)
        keys = [row.key for row in missing]
        found |= {row["key"]: row["address_id"] for row in await tx.fetch(_READ_JOURNALLED, keys)}
    return [found[row.key] for row in rows]


async def _insert(tx: Connection, rows: Sequence[NewDelivery]) -> dict[str, int]:
    """Journal what is new and has an address already; returns its address ids by key."""
    inserted = await tx.fetch(
        _INSERT_DELIVERIES, as_rows(NewDelivery._fields, [row._replace(text=clean(row.text)) for row in rows])
    )
    return {row["key"]: row["address_id"] for row in inserted}


async def abandon_pending(tx: Connection, run_ids: Sequence[UUID], reason: str = ABANDONED) -> int:
    """Send no more of these runs; the caller holds their lanes. Returns how many deliveries were ended.

    A pending one ends `failed` (`unknown` where an earlier attempt may have arrived). One that is being
    sent, or whose answer was lost, is marked cancelled and ends `sent` or `unknown` by reconciliation.
    """
    ended = await tx.fetch(_ABANDON_DELIVERIES, list(run_ids), reason)
    recalled = [row for row in ended if row["recalled"]]
    await finish_replies(tx, [row["reply_key"] for row in recalled], [row["lane_id"] for row in recalled])
    return len(ended)


async def finish_replies(tx: Connection, reply_keys: Sequence[str], lane_ids: Sequence[int]) -> int:
    """After deliveries became final: the transcript says so, and lanes that waited for them may go on; how many do.

    The caller holds the lanes. Takes recalled replies only.
    """
    if not reply_keys:
        return 0
    await tx.execute(_SETTLE_REPLIES, sorted(set(reply_keys)))
    return touched(await tx.execute(_RELEASE_GATE, sorted(set(lane_ids))))
