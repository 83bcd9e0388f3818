"""Look at a conversation, reset it (forget from here on) or delete it (remove what was kept).

Both move the lane to its next generation, so that work of the old one restores nothing; both refuse while a turn is
active and name its run, or wait for its end (`quiet`). Queued runs of the old generation end as cancelled, unsent
replies are abandoned. A deleted conversation leaves a tombstone: its row, its generation, and the moment.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from schemas.identity import Identity
from workers.delivery.journal import abandon_pending
from workers.memory.binding import conversation_lane_key
from workers.memory.limits import Limits
from workers.operations import audit, facts, store
from workers.operations.errors import NotFound, TurnActive
from workers.operations.policy import CANCELLED_BY_DELETE, CANCELLED_BY_RESET
from workers.operations.quiet import WITHIN, WhenActive, once_quiet
from workers.operations.retention import Retention
from workers.operations.runs import end_runs
from workers.operations.sweeper import Sweeper
from workers.postgres.database import Connection, Database
from workers.postgres.sql import load
from workers.turns.lanes import hold_lanes

LIST_CONVERSATIONS = load(__package__, "list_conversations")
FIND_CONVERSATION = load(__package__, "find_conversation")
READ_CONVERSATION = load(__package__, "read_conversation")
READ_ITEMS = load(__package__, "read_items")
READ_LIVE_NOTES = load(__package__, "read_live_notes")
FIND_LANE_RUNS = load(__package__, "find_lane_runs")
ADVANCE_GENERATION = load(__package__, "advance_generation")
CARRY_NOTES = load(__package__, "carry_notes")
DELETE_NOTES = load(__package__, "delete_notes")
DELETE_NOTE_OPERATIONS = load(__package__, "delete_note_operations")
DELETE_ITEMS = load(__package__, "delete_items")
BURY_CONVERSATION = load(__package__, "bury_conversation")


@dataclass(frozen=True, slots=True)
class ConversationLine:
    """A conversation in a list; `active_run` owns it now."""

    lane_id: int
    memory_key: str
    channel: str
    account: str
    chat: str
    audience: str
    generation: int
    created_at: datetime
    deleted_at: datetime | None
    active_run: UUID | None


@dataclass(frozen=True, slots=True)
class ItemLine:
    """One transcript item; `body` is None where only its size was kept."""

    item_id: int
    generation: int
    kind: str
    status: str
    run_id: UUID
    event_id: str | None
    body: str | None
    body_bytes: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NoteLine:
    """One live note."""

    key: str
    body: str
    body_bytes: int
    expires_at: datetime | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Inspected:
    """A conversation with its counts, one page of its items (newest first) and its live notes."""

    conversation: ConversationLine
    item_count: int
    note_count: int
    open_runs: int
    open_deliveries: int
    items: tuple[ItemLine, ...]
    notes: tuple[NoteLine, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """What a reset or delete did."""

    lane_id: int
    act: Literal["reset", "delete"]
    generation: int
    cancelled_runs: int
    abandoned_deliveries: int


async def list_conversations(
    database: Database,
    *,
    memory_key: str | None = None,
    channel: str | None = None,
    chat: str | None = None,
    at_most: int = 50,
) -> list[ConversationLine]:
    """The newest conversations that fit."""
    rows = await database.fetch(LIST_CONVERSATIONS, memory_key, channel, chat, at_most)
    return [ConversationLine(*row) for row in rows]


async def find_conversation(database: Database, identity: Identity) -> int | None:
    """The lane of an identity, or None; creates nothing."""
    row = await database.fetchrow(FIND_CONVERSATION, conversation_lane_key(identity))
    return None if row is None else int(row["lane_id"])


async def inspect(
    database: Database, conversation: int | Identity, *, at_most: int = 20, offset: int = 0
) -> Inspected | None:
    """What is kept of a conversation, or None where there is none; the server itself lets it create nothing."""
    async with facts.looking(database) as tx:
        lane_id = await _lane_of(tx, conversation)
        row = None if lane_id is None else await tx.fetchrow(READ_CONVERSATION, lane_id)
        if row is None:
            return None
        items = await tx.fetch(READ_ITEMS, lane_id, at_most, offset)
        notes = await tx.fetch(READ_LIVE_NOTES, lane_id)
    return Inspected(
        conversation=ConversationLine(*tuple(row)[:10]),
        item_count=row["items"],
        note_count=row["notes"],
        open_runs=row["open_runs"],
        open_deliveries=row["open_deliveries"],
        items=tuple(ItemLine(*item) for item in items),
        notes=tuple(NoteLine(*note) for note in notes),
    )


def _unheard(run_id: UUID) -> None:
    """Nobody wants to know which run is waited for."""


async def reset(
    database: Database,
    conversation: int | Identity,
    actor: str,
    *,
    keep_notes: bool = False,
    when_active: WhenActive = "refuse",
    within: timedelta = WITHIN,
    waiting: Callable[[UUID], None] = _unheard,
) -> Renewed:
    """Begin the next generation: nothing older is recalled, notes only where they are kept.

    Old items stay until their retention ends. Raises NotFound, TurnActive.
    """

    async def act() -> Renewed:
        async with database.transaction() as tx:
            renewed = await _renew(tx, conversation, "reset", CANCELLED_BY_RESET)
            if keep_notes:
                await tx.execute(CARRY_NOTES, renewed.lane_id, renewed.generation)
            else:
                await tx.execute(DELETE_NOTES, renewed.lane_id)
            await _audit(tx, renewed, actor, {"keep_notes": keep_notes})
        return renewed

    return await once_quiet(database, act, actor, when_active, within, waiting)


async def delete(
    database: Database,
    conversation: int | Identity,
    actor: str,
    *,
    when_active: WhenActive = "refuse",
    within: timedelta = WITHIN,
    waiting: Callable[[UUID], None] = _unheard,
) -> Renewed:
    """Remove items, notes and their receipts; the tombstone stays. Raises NotFound, TurnActive."""

    async def act() -> Renewed:
        async with database.transaction() as tx:
            renewed = await _renew(tx, conversation, "delete", CANCELLED_BY_DELETE)
            for statement in (DELETE_ITEMS, DELETE_NOTES, DELETE_NOTE_OPERATIONS, BURY_CONVERSATION):
                await tx.execute(statement, renewed.lane_id)
            await _audit(tx, renewed, actor, {})
        return renewed

    return await once_quiet(database, act, actor, when_active, within, waiting)


async def prune(
    database: Database,
    retention: Retention,
    actor: str,
    *,
    limits: Limits | None = None,
    dry_run: bool = False,
    pruned: Callable[[str, int], None] = lambda table, rows: None,
) -> dict[str, int]:
    """Remove what retention lets go of all conversations; rows by table, also told to `pruned` batch by batch.

    Items go by `limits`, those of the app, or without them by `retention` alone. What is done stays done and is audited
    where it ends early. Raises ActRefused while another sweeps.
    """
    removed: Counter[str] = Counter()

    def note(table: str, rows: int) -> None:
        removed[table] += rows
        pruned(table, rows)

    try:
        return await Sweeper(database, retention, limits=limits, pruned=note).prune_memory(dry_run=dry_run)
    finally:
        if removed:
            async with database.transaction() as tx:
                await audit.record(tx, actor, "conversations.prune", "all conversations", removed)


async def _lane_of(tx: Connection, conversation: int | Identity) -> int | None:
    if not isinstance(conversation, Identity):
        return conversation
    lane_id: int | None = await tx.fetchval(FIND_CONVERSATION, conversation_lane_key(conversation))
    return lane_id


def unknown(conversation: int | Identity) -> NotFound:
    """Nobody ever spoke there, or nothing of it is left."""
    if isinstance(conversation, Identity):
        name = f"under memory key {conversation.memory_key} at {_place(conversation)}"
    else:
        name = str(conversation)
    return NotFound("conversation", name, "`parley conversations list` shows the newest")


def _place(identity: Identity) -> str:
    return f"{identity.channel}/{identity.account}, chat {identity.chat}, audience {identity.audience}"


async def _renew(
    tx: Connection, conversation: int | Identity, act: Literal["reset", "delete"], reason: str
) -> Renewed:
    lane_id = await _lane_of(tx, conversation)
    locked = [] if lane_id is None else await hold_lanes(tx, [lane_id])
    if lane_id is None or not locked or await tx.fetchrow(READ_CONVERSATION, lane_id) is None:
        raise unknown(conversation)
    if (owner := locked[0].owner_run) is not None:
        raise TurnActive(act, lane_id, owner, "give --wait to wait for its end, or --cancel to cancel it")
    cancelled, abandoned = await _end_old_work(tx, lane_id, reason)
    generation = await tx.fetchval(ADVANCE_GENERATION, lane_id)
    return Renewed(lane_id, act, generation, cancelled, abandoned)


async def _end_old_work(tx: Connection, lane_id: int, reason: str) -> tuple[int, int]:
    """Cancel what is queued and abandon what earlier turns still had to send; how many runs and deliveries."""
    run_ids: Sequence[UUID] = [row["id"] for row in await tx.fetch(FIND_LANE_RUNS, lane_id)]
    states = await store.read_run_states(tx, run_ids)
    queued = [state for state in states if not state.finished]
    await end_runs(tx, queued, reason)
    ended = [state.run_id for state in states if state.finished]
    abandoned = await abandon_pending(tx, ended, f"abandoned: {reason}")
    return len(queued), abandoned


async def _audit(tx: Connection, renewed: Renewed, actor: str, detail: dict[str, object]) -> None:
    counts = {
        "generation": renewed.generation,
        "cancelled_runs": renewed.cancelled_runs,
        "abandoned_deliveries": renewed.abandoned_deliveries,
    }
    await audit.record(tx, actor, f"conversation.{renewed.act}", str(renewed.lane_id), {**counts, **detail})
