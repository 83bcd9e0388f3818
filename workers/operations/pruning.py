"""Removes what its retention has let go, a bounded batch a transaction.

Every task walks a key that grows with time from where its last batch ended, so that what must stay is looked at once a
round and what is gone not at all. Any number may run at once: rows are locked in one order, or skipped where held.

Of conversation memory: expired notes, receipts of note edits once their run has ended, items that are older or more
than the app's limits let be, and, where that is set, conversations of which nothing is left. A batch that cannot
find out whether runs have ended removes nothing, and the failure is raised.
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
from workers.memory.limits import Limits
from workers.operations.retention import ADDRESS_MARGIN, Retention
from workers.postgres.database import Connection, Row
from workers.postgres.rows import touched
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
DELETE_SETTLED_RECEIPTS = load(__package__, "delete_settled_receipts")
DELETE_EMPTY_CONVERSATIONS = load(__package__, "delete_empty_conversations")

BATCH: Final = 1000
CONVERSATIONS_A_BATCH: Final = 50
ITEMS_A_CONVERSATION: Final = 100
MOST_LEFT: Final = 5_000
"""Deliveries kept beyond their time, at which addresses wait until those are gone."""
NO_BOUND: Final = 2**31 - 1
"""For counting: nothing a batch leaves is found again once it was rolled back."""
_BEFORE_ALL: Final = UUID(int=0)
_FIRST_RECEIPT: Final = (_BEFORE_ALL, -1, -1)


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


MEMORY: Final = frozenset({"receipts", "notes", "items", "conversations"})
"""The tasks that prune conversation memory and nothing else."""


def tasks(
    retention: Retention,
    batch: int = BATCH,
    *,
    limits: Limits | None = None,
    memory_at_once: int | None = None,
) -> list[Task]:
    """What there is to prune, in an order in which one frees what the next may remove.

    `limits` are those of the app's conversation memory; without them items go by `retention` alone. `memory_at_once`
    bounds notes and items of a batch in the place of `batch`.
    """
    of_memory = memory_at_once or batch
    of_each = memory_at_once or ITEMS_A_CONVERSATION
    found = [
        Task("reservations", None, partial(_reservations, batch)),
        Task("receipts", _FIRST_RECEIPT, partial(_receipts, batch)),
        Task("runs", _BEFORE_ALL, partial(_runs, retention, batch)),
        Task("notes", None, partial(_notes, of_memory)),
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
    memory = []
    if (age := kept_for(retention, limits)) is not None:
        stored = None if limits is None else limits.max_stored_items
        most = (of_memory, of_each)
        memory.append(Task("items", -1, partial(_items, age, stored, batch, most), WALK_EVERY))
    if retention.conversations is not None:
        memory.append(Task("conversations", -1, partial(_conversations, retention, batch), WALK_EVERY))
    return [*found[:4], *memory, *found[4:]]


def kept_for(retention: Retention, limits: Limits | None) -> timedelta | None:
    """How long transcript items are kept, None for ever: the shorter of the app's limit and the operator's setting."""
    asked = (retention.conversations, None if limits is None else limits.retention)
    return min((age for age in asked if age is not None), default=None)


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


async def _receipts(batch: int, tx: Connection, after: tuple[UUID, int, int]) -> Batch:
    """Receipts of note edits whose run has ended; those of an open run answer its repeated edits."""
    row = await tx.fetchrow(DELETE_SETTLED_RECEIPTS, *after, batch)
    assert row is not None, "an aggregate gives one row"
    onward = (row["run_id"], row["step"], row["call"]) if row["looked"] == batch else None
    return Batch(Counter(note_operations=row["gone"]), onward)


async def _items(
    age: timedelta, stored: int | None, batch: int, most: tuple[int, int], tx: Connection, after: int
) -> Batch:
    """Old and surplus items of the next conversations; the same ones again while a bound cuts that short."""
    page = min(CONVERSATIONS_A_BATCH, batch)
    row = await tx.fetchrow(DELETE_OLD_ITEMS, after, page, age, stored, *most)
    assert row is not None, "an aggregate gives one row"
    removed = Counter(items=row["gone"])
    if row["more"] and row["gone"]:
        return Batch(removed, after)
    return Batch(removed, row["last"] if row["looked"] == page else None)


async def _conversations(retention: Retention, batch: int, tx: Connection, after: int) -> Batch:
    """Conversations of which nothing is left, with their lanes."""
    page = min(CONVERSATIONS_A_BATCH, batch)
    rows = await tx.fetch(LOCK_NEXT_CONVERSATIONS, after, page, retention.conversations)
    lanes = [row["lane_id"] for row in rows if row["locked"]]
    emptied = [
        row["lane_id"] for row in await tx.fetch(DELETE_EMPTY_CONVERSATIONS, lanes, retention.conversations)
    ]
    removed = Counter(
        conversations=len(emptied), lanes=await _execute(tx, DELETE_LANES, emptied) if emptied else 0
    )
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
    return touched(await tx.execute(statement, *arguments))
