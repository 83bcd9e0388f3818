"""The statements of claiming and reconciling deliveries. The caller opens the transaction; nothing commits
here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from workers.channels.port import Found, Outgoing
from workers.postgres.database import Connection, Row
from workers.postgres.sql import load
from workers.turns.store import hold_session

_LOCK_ADDRESSES = load(__package__, "lock_addresses")
_CLAIM_HEADS = load(__package__, "claim_heads")
_MARK_ABANDONED_SENDS = load(__package__, "mark_abandoned_sends")
_LEASE_UNCERTAIN = load(__package__, "lease_uncertain")
_WALK_OVERDUE = load(__package__, "walk_overdue")


# Made for every turn: a frozen one costs three times as much to make.
@dataclass(slots=True)
class Claimed:
    """A delivery that this session may send, or ask about, while its attempt number stands; database
    times."""

    id: UUID
    session_id: UUID
    key: str
    reply_key: str
    run_id: UUID
    lane_id: int
    recalled: bool
    address_id: int
    channel: str
    account: str
    address: str
    text: str
    attempt: int
    failures: int
    first_sent_at: datetime
    claimed_at: datetime
    suspect: bool
    possible_duplicate: bool
    traceparent: str | None
    reason: str | None
    more: bool

    @property
    def outgoing(self) -> Outgoing:
        """What the channel gets."""
        return Outgoing(
            delivery_id=self.id,
            key=self.key,
            channel=self.channel,
            account=self.account,
            address=self.address,
            text=self.text,
            attempt=self.attempt,
            first_sent_at=self.first_sent_at,
            traceparent=self.traceparent,
            possible_duplicate=self.possible_duplicate,
        )


@dataclass(frozen=True, slots=True)
class Leased:
    """An uncertain delivery to decide about at database time `now`; `known` is what a late sender left
    behind."""

    delivery: Claimed
    now: datetime
    known: Found | None


@dataclass(frozen=True, slots=True)
class LockedAddresses:
    """`busy` ones are held by another transaction at this moment: worth asking again at once."""

    locked: list[int]
    busy: list[int]


@dataclass(frozen=True, slots=True)
class WalkedAddress:
    address_id: int
    overdue: bool


async def lock_addresses(
    tx: Connection, session_id: UUID, address_ids: Sequence[int], channels: Sequence[str]
) -> LockedAddresses:
    """Hold the session and lock those that no wait holds; other channels' are left out. Raises SessionGone."""
    rows = await tx.fetch(_LOCK_ADDRESSES, list(address_ids), list(channels), session_id)
    if not rows:
        await hold_session(tx, session_id)
    return LockedAddresses(
        locked=[row["id"] for row in rows if row["locked"]],
        busy=[row["id"] for row in rows if not row["locked"]],
    )


async def claim_heads(
    tx: Connection, session_id: UUID, address_ids: Sequence[int], head_hold: timedelta
) -> list[Claimed]:
    """Take the due heads of locked addresses. A unique violation means that one of them is being sent."""
    rows = await tx.fetch(_CLAIM_HEADS, session_id, list(address_ids), head_hold)
    return [_claimed(row, session_id) for row in rows]


async def mark_abandoned_sends(
    tx: Connection, at_most: int, longest: timedelta, reason: str
) -> Sequence[Row]:
    """Sends that nobody will finish become uncertain; `longest` bounds those of living sessions."""
    return await tx.fetch(_MARK_ABANDONED_SENDS, at_most, longest, reason)


async def lease_uncertain(
    tx: Connection, session_id: UUID, at_most: int, lease_for: timedelta, channels: Sequence[str]
) -> list[Leased]:
    """Take the longest due uncertain deliveries of these channels for one decision each."""
    rows = await tx.fetch(_LEASE_UNCERTAIN, session_id, at_most, lease_for, list(channels))
    return [
        Leased(
            _claimed(row, session_id),
            row["now"],
            Found(row["known_provider_id"]) if row["known_sent"] else None,
        )
        for row in rows
    ]


async def walk_overdue(
    tx: Connection,
    above: int,
    at_most: int,
    overdue_by: timedelta,
    channels: Sequence[str],
    head_hold: timedelta,
) -> list[WalkedAddress]:
    """The next addresses with open deliveries, in id order, and which of them have an overdue head."""
    rows = await tx.fetch(_WALK_OVERDUE, above, at_most, overdue_by, list(channels), head_hold)
    return [WalkedAddress(row["address_id"], row["overdue"]) for row in rows]


def _claimed(row: Row, session_id: UUID) -> Claimed:
    return Claimed(
        id=row["id"],
        session_id=session_id,
        key=row["key"],
        reply_key=row["reply_key"],
        run_id=row["run_id"],
        lane_id=row["lane_id"],
        recalled=row["recalled"],
        address_id=row["address_id"],
        channel=row["channel"],
        account=row["account"],
        address=row["address"],
        text=row["body"].decode(),
        attempt=row["attempt"],
        failures=row["failures"],
        first_sent_at=row["first_sent_at"],
        claimed_at=row["claimed_at"],
        suspect=row["suspect"],
        possible_duplicate=row["possible_duplicate"],
        traceparent=row["traceparent"],
        reason=row["reason"],
        more=row["more"],
    )
