"""A desk with one lab channel, a sender and a reconciler over a real database, and builders of what they need."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from schemas.delivery import DeliveryState
from schemas.run import new_uuid7
from workers.channels.lab import LabChannel
from workers.channels.port import Channel
from workers.delivery.journal import NewDelivery, journal
from workers.delivery.loops.reconciler import ReconcileLimits, Reconciler
from workers.delivery.loops.sender import Sender, SendLimits
from workers.delivery.policy import Retries
from workers.delivery.receipts import Receipts
from workers.postgres.database import Connection, Database
from workers.telemetry.metrics import Metrics

_LANE_KEYS = itertools.count()


@dataclass(frozen=True, slots=True)
class Conversation:
    """One lane that is a conversation, with one run in it."""

    lane_id: int
    run_id: UUID


async def a_session(db: Database, session_id: UUID | None = None) -> UUID:
    """A living worker session."""
    session_id = session_id or uuid.uuid4()
    await db.execute(
        "insert into worker_sessions (id, worker, lease_until) values ($1, 'w', now() + interval '1 hour')",
        session_id,
    )
    return session_id


async def a_conversation(tx: Connection | Database, *, status: str = "running") -> Conversation:
    """A lane, its conversation and one run."""
    key = f"lane-{uuid.uuid4()}-{next(_LANE_KEYS)}"
    row = await tx.fetchrow(
        "insert into lanes (key, kind) values ($1, 'conversation') returning id", key.encode()
    )
    assert row is not None
    lane_id, run_id = row["id"], uuid.uuid4()
    await tx.execute(
        "insert into conversations (lane_id, memory_key, channel, account, chat, audience)"
        " values ($1, 'm', 'lab', 'a', $2, 'direct')",
        lane_id,
        key,
    )
    await tx.execute(
        "insert into runs (id, lane_id, generation, position, agent, channel, account, event_id, status, event)"
        " values ($1, $2, 0, 1, 'echo', 'lab', 'a', $3, $4, '')",
        run_id,
        lane_id,
        key,
        status,
    )
    return Conversation(lane_id, run_id)


def a_reply(
    conversation: Conversation,
    *chunks: str,
    step: int = 0,
    address: str = "chat-1",
    channel: str = "lab",
    account: str = "a",
    recalled: bool = True,
) -> list[NewDelivery]:
    """The rows of one reply, one a chunk."""
    reply_key = f"{conversation.run_id}:{step}:0"
    return [
        NewDelivery(
            id=new_uuid7(),
            key=reply_key if len(chunks) == 1 else f"{reply_key}:{chunk}",
            reply_key=reply_key,
            chunk=chunk,
            run_id=conversation.run_id,
            lane_id=conversation.lane_id,
            generation=0,
            agent="echo",
            recalled=recalled,
            channel=channel,
            account=account,
            address=address,
            text=text,
        )
        for chunk, text in enumerate(chunks)
    ]


@dataclass
class Desk:
    """What a test needs to send and to look."""

    db: Database
    channel: LabChannel
    sender: Sender
    reconciler: Reconciler
    receipts: Receipts
    session_id: UUID
    metrics: Metrics
    steps: itertools.count[int] = field(default_factory=itertools.count)

    async def reply(self, *chunks: str, conversation: Conversation | None = None, **where: Any) -> list[UUID]:
        """Journal one reply; returns the ids of its deliveries."""
        conversation = conversation or await a_conversation(self.db)
        rows = a_reply(conversation, *chunks, step=next(self.steps), **where)
        await self.journal(rows)
        return [row.id for row in rows]

    async def journal(self, rows: Sequence[NewDelivery]) -> list[int]:
        """Journal and commit; returns the address of each."""
        async with self.db.transaction() as tx:
            return await journal(tx, rows)

    async def row(self, delivery_id: UUID) -> Mapping[str, Any]:
        row = await self.db.fetchrow("select * from deliveries where id = $1", delivery_id)
        assert row is not None
        return dict(row)

    async def state_of(self, delivery_id: UUID) -> DeliveryState:
        return DeliveryState((await self.row(delivery_id))["state"])

    async def states(self) -> list[str]:
        """The states of all deliveries in their order."""
        return [row["state"] for row in await self.db.fetch("select state from deliveries order by position")]

    async def addresses(self) -> list[int]:
        return [row["id"] for row in await self.db.fetch("select id from addresses order by id")]

    async def send(self) -> int:
        """One pass of the sender over all addresses."""
        return await self.sender.run_once(await self.addresses())

    async def pass_time(self, by: timedelta) -> None:
        """Shift the database's clock."""
        await pass_time(self.db, by)

    async def attempts(self, delivery_id: UUID) -> list[tuple[str, str, bool]]:
        """Kind, outcome and lateness of each line of the attempt log."""
        rows = await self.db.fetch(
            "select kind, outcome, late from delivery_attempts where delivery_id = $1 order by id",
            delivery_id,
        )
        return [(row["kind"], row["outcome"], row["late"]) for row in rows]


async def pass_time(db: Database, by: timedelta) -> None:
    """Move `parley_now()` forward from wherever it is; the real clock goes on behind it."""
    current = await db.fetchrow("select parley_now() - now() as ahead")
    assert current is not None
    seconds = (current["ahead"] + by).total_seconds()
    await db.execute(
        "create or replace function parley_now() returns timestamptz language sql stable parallel safe as"
        f" 'select now() + interval ''{seconds} seconds'''"
    )


@asynccontextmanager
async def a_desk(
    url: str,
    channel: LabChannel | None = None,
    *,
    others: Mapping[str, Channel] | None = None,
    limits: SendLimits | None = None,
    retries: Retries | None = None,
    reached: Callable[[str], None] = lambda point: None,
    monotonic: Callable[[], float] | None = None,
    flushers: int = 2,
    max_size: int = 8,
) -> AsyncIterator[Desk]:
    """A desk on the database at `url`, with a session of its own."""
    channel = channel or LabChannel()
    db = await Database.open(url, max_size=max_size)
    metrics = Metrics()
    receipts = Receipts(db, metrics, reached=reached, flushers=flushers)
    session_id = await a_session(db)
    channels: dict[str, Channel] = {channel.name: channel, **(others or {})}
    limits, retries = limits or SendLimits(), retries or Retries()
    clock = {} if monotonic is None else {"monotonic": monotonic}
    sender = Sender(
        db,
        channels,
        session_id,
        receipts,
        metrics,
        limits=limits,
        retries=retries,
        jitter=lambda: 0.0,
        reached=reached,
        **clock,
    )
    reconciler = Reconciler(
        db,
        channels,
        session_id,
        sender,
        receipts,
        metrics,
        limits=ReconcileLimits(every=timedelta(seconds=0.2)),
        sending=limits,
        retries=retries,
        reached=reached,
    )
    try:
        yield Desk(db, channel, sender, reconciler, receipts, session_id, metrics)
    finally:
        await receipts.close()
        await db.close()
