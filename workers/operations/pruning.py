"""Removes what its retention has let go, a bounded batch a transaction.

Every task walks a key that grows with time from where its last batch ended, so that what must stay is looked at once a
round and what is gone not at all. Any number may run at once: rows are locked in one order, or skipped where held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from workers.admission import store as admission
from workers.operations.retention import ADDRESS_MARGIN, Retention
from workers.postgres.database import Connection, Row
from workers.postgres.sql import load

FIND_OLD_RUNS = load(__package__, "find_old_runs")
LOCK_RUN_DELIVERIES = load(__package__, "lock_run_deliveries")
DELETE_ATTEMPTS = load(__package__, "delete_attempts")
DELETE_DELIVERIES = load(__package__, "delete_deliveries")
DELETE_RUN_RECEIPTS = load(__package__, "delete_run_receipts")
DELETE_STEPS = load(__package__, "delete_steps")
DELETE_RUNS = load(__package__, "delete_runs")
LOCK_SPENT_LANES = load(__package__, "lock_spent_lanes")
DELETE_LANES = load(__package__, "delete_lanes")
DELETE_OLD_LETTERS = load(__package__, "delete_old_letters")
DELETE_OLD_AUDIT = load(__package__, "delete_old_audit")
DELETE_OLD_SESSIONS = load(__package__, "delete_old_sessions")
DELETE_PAST_HOLDS = load(__package__, "delete_past_holds")
DELETE_PAST_NOTES = load(__package__, "delete_past_notes")
DELETE_OLD_ADDRESSES = load(__package__, "delete_old_addresses")
LOCK_NEXT_CONVERSATIONS = load(__package__, "lock_next_conversations")
DELETE_OLD_ITEMS = load(__package__, "delete_old_items")
DELETE_EMPTY_CONVERSATIONS = load(__package__, "delete_empty_conversations")

BATCH: Final = 1000
CONVERSATIONS_A_BATCH: Final = 50
ITEMS_A_CONVERSATION: Final = 100
MOST_LEFT: Final = 5_000
"""Deliveries kept beyond their time, at which addresses wait until those are gone."""
MOST_ITEMS: Final = 10_000
"""More than a conversation can hold."""
_BEFORE_ALL: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch removed, by table; `after` is where the next one goes on, None at the end."""

    removed: Counter[str] = field(default_factory=Counter)
    after: Any = None


@dataclass(frozen=True, slots=True)
class Task:
    """One kind of pruning: `step(tx, after)` does a batch from `start` on; a round of it is due `every` so often."""

    name: str
    start: Any
    step: Callable[[Connection, Any], Awaitable[Batch]]
    every: timedelta = timedelta(0)


WALK_EVERY: Final = timedelta(hours=1)
"""How often to walk a table of which most rows stay."""


def tasks(retention: Retention, batch: int = BATCH, items: int = ITEMS_A_CONVERSATION) -> list[Task]:
    """What there is to prune, in an order in which one frees what the next may remove."""
    found = [
        Task("reservations", None, partial(_reservations, batch)),
        Task("runs", _BEFORE_ALL, partial(_runs, retention, batch)),
        Task("notes", None, partial(_notes, batch)),
        Task("addresses", 0, partial(_addresses, retention, batch), WALK_EVERY),
        Task("mailbox", 0, partial(_by_age, "mailbox", DELETE_OLD_LETTERS, retention.mailbox, batch)),
        Task("audit", 0, partial(_by_age, "audit", DELETE_OLD_AUDIT, retention.audit, batch)),
        Task(
            "worker_sessions",
            _BEFORE_ALL,
            partial(_by_age, "worker_sessions", DELETE_OLD_SESSIONS, retention.sessions, batch),
        ),
        Task("send_holds", None, partial(_holds, retention, batch)),
    ]
    if retention.conversations is not None:
        found.insert(
            3, Task("conversations", -1, partial(_conversations, retention, batch, items), WALK_EVERY)
        )
    return found


async def _reservations(batch: int, tx: Connection, after: object) -> Batch:
    removed = await admission.delete_expired_reservations(tx, batch)
    return Batch(Counter(reservations=removed), True if removed == batch else None)


async def _runs(retention: Retention, batch: int, tx: Connection, after: UUID) -> Batch:
    """Runs that ended long ago, with everything that belongs to them."""
    rows = await tx.fetch(FIND_OLD_RUNS, after, retention.runs, batch)
    onward = rows[-1]["id"] if len(rows) == batch else None
    done = {row["id"]: row for row in rows if row["done"]}
    if not done:
        return Batch(after=onward)
    deliveries = await tx.fetch(LOCK_RUN_DELIVERIES, list(done))
    for row in deliveries:
        if not row["final"]:
            done.pop(row["run_id"], None)
    runs, sent = list(done), [row["id"] for row in deliveries if row["run_id"] in done]
    removed = Counter(
        delivery_attempts=await _execute(tx, DELETE_ATTEMPTS, sent),
        deliveries=await _execute(tx, DELETE_DELIVERIES, sent),
        note_operations=await _execute(tx, DELETE_RUN_RECEIPTS, runs),
        run_steps=await _execute(tx, DELETE_STEPS, runs),
        runs=await _execute(tx, DELETE_RUNS, runs),
        lanes=await _spent_lanes(tx, list(done.values())),
    )
    return Batch(removed, onward)


async def _spent_lanes(tx: Connection, runs: Sequence[Row]) -> int:
    newest: dict[int, int] = {}
    for row in runs:
        newest[row["lane_id"]] = max(row["position"], newest.get(row["lane_id"], 0))
    locked = await tx.fetch(LOCK_SPENT_LANES, list(newest), list(newest.values()))
    return await _execute(tx, DELETE_LANES, [row["id"] for row in locked]) if locked else 0


async def _conversations(
    retention: Retention, batch: int, most_items: int, tx: Connection, after: int
) -> Batch:
    """Old items of every conversation, and those conversations of which nothing is left then."""
    page = min(CONVERSATIONS_A_BATCH, batch)
    rows = await tx.fetch(LOCK_NEXT_CONVERSATIONS, after, page)
    lanes = [row["lane_id"] for row in rows if row["locked"]]
    items = await _execute(tx, DELETE_OLD_ITEMS, lanes, retention.conversations, most_items)
    emptied = [
        row["lane_id"] for row in await tx.fetch(DELETE_EMPTY_CONVERSATIONS, lanes, retention.conversations)
    ]
    removed = Counter(
        items=items,
        conversations=len(emptied),
        lanes=await _execute(tx, DELETE_LANES, emptied) if emptied else 0,
    )
    if items >= most_items:
        return Batch(removed, after)
    return Batch(removed, rows[-1]["lane_id"] if len(rows) == page else None)


async def _notes(batch: int, tx: Connection, after: object) -> Batch:
    removed = await _execute(tx, DELETE_PAST_NOTES, batch)
    return Batch(Counter(notes=removed), True if removed == batch else None)


async def _holds(retention: Retention, batch: int, tx: Connection, after: object) -> Batch:
    removed = await _execute(tx, DELETE_PAST_HOLDS, retention.sessions, batch)
    return Batch(Counter(send_holds=removed), True if removed == batch else None)


async def _addresses(retention: Retention, batch: int, tx: Connection, after: int) -> Batch:
    age = retention.addresses
    row = await tx.fetchrow(DELETE_OLD_ADDRESSES, after, age, age - ADDRESS_MARGIN, batch, MOST_LEFT)
    assert row is not None, "an aggregate gives one row"
    return Batch(Counter(addresses=row["gone"]), row["last"] if row["looked"] == batch else None)


async def _by_age(
    table: str, statement: str, age: object, batch: int, tx: Connection, after: object
) -> Batch:
    """A table whose ids grow with time: the first batch without an old row is the last."""
    row = await tx.fetchrow(statement, after, age, batch)
    assert row is not None, "an aggregate gives one row"
    return Batch(Counter({table: row["gone"]}), row["last"] if row["old"] else None)


async def _execute(tx: Connection, statement: str, *arguments: object) -> int:
    """How many rows the statement removed."""
    return int((await tx.execute(statement, *arguments)).rsplit(" ", 1)[1])
