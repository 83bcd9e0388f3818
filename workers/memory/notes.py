"""Notes: an edit and its receipt commit together, under the lock of a lane that its turn still owns.

A repeated operation (same run, step and call) edits once and gets the first receipt; a receipt holds no body.
Reads take no lock and never see an expired note. What an app's policy says comes before every call of a `Notebook`.

A note's text stands in its own row, in the snapshots that recalled it, and where the agent's own steps hold it: in the
journalled answer of the model that asked for it, and in what `memory_get` and `memory_list` gave back. A removal
clears the row; the journal goes with its run.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar
from uuid import UUID

import structlog

from schemas import jsonio
from workers.memory import policy
from workers.memory.access import Allow, Deny, PolicyUnavailable
from workers.memory.policy import NoteDraft, Problem
from workers.postgres.database import Database
from workers.postgres.retrying import through_outages
from workers.postgres.sql import load

Act = Literal["set", "remove"]
Position = tuple[int, int]
"""Step and call of the operation within its run."""


T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NoteScope:
    """Whose notes, and under which ownership they may be edited."""

    lane_id: int
    generation: int
    epoch: int
    run_id: UUID


@dataclass(frozen=True, slots=True)
class Note:
    """A live note."""

    key: str
    body: str
    body_bytes: int
    updated_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class NotePage:
    """At most 50 notes by key; `next_cursor` is given while more follow."""

    notes: tuple[Note, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an edit did. `changed` is False only for the removal of a note that was not there."""

    act: Act
    key: str
    changed: bool
    created: bool = False
    body_bytes: int = 0
    updated_at: str | None = None
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was done, and nothing evicted: `problem` says why."""

    problem: Problem | Literal["too_many_notes", "unknown_cursor"]


@dataclass(frozen=True, slots=True)
class NotOwner:
    """The turn does not own its conversation any more; nothing was written."""


class Notes:
    """The notes of all conversations in one database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def set(
        self, scope: NoteScope, at: Position, key: str, text: str, expires_in: timedelta | None = None
    ) -> Receipt | Refused | NotOwner:
        """Write the note `key`; it expires after `expires_in`, or never."""
        draft = policy.draft_note(key, text, expires_in)
        if not isinstance(draft, NoteDraft):
            return Refused(draft)
        async with self._db.transaction() as tx:
            if not await _owns(tx, scope):
                return NotOwner()
            if first := await _receipt_of(tx, scope, at):
                return first
            await tx.execute(_DELETE_EXPIRED, scope.lane_id, scope.generation)
            if (
                await tx.fetchval(_COUNT_OTHERS, scope.lane_id, scope.generation, key)
                >= policy.MAX_LIVE_NOTES
            ):
                return Refused("too_many_notes")
            receipt = await _write(tx, scope, draft)
            await _record(tx, scope, at, receipt)
            return receipt

    async def remove(self, scope: NoteScope, at: Position, key: str) -> Receipt | Refused | NotOwner:
        """Remove the note `key`; a note that is not there is a receipt with `changed` False."""
        if problem := policy.key_problem(key):
            return Refused(problem)
        async with self._db.transaction() as tx:
            if not await _owns(tx, scope):
                return NotOwner()
            if first := await _receipt_of(tx, scope, at):
                return first
            was_live = await tx.fetchval(_DELETE_NOTE, scope.lane_id, scope.generation, key)
            receipt = Receipt("remove", key, changed=bool(was_live))
            await _record(tx, scope, at, receipt)
            return receipt

    async def get(self, scope: NoteScope, key: str) -> Note | None:
        """The live note `key`."""
        if policy.key_problem(key):
            return None
        row = await self._db.fetchrow(_READ_NOTE, scope.lane_id, scope.generation, key)
        return None if row is None else Note(*row)

    async def list(
        self, scope: NoteScope, cursor: str | None = None, limit: int = policy.MAX_LISTED
    ) -> NotePage | Refused:
        """Live notes by key, those after `cursor`; `limit` is 1 to 50. A cursor of another scope is refused."""
        after = policy.key_before(cursor, scope.lane_id, scope.generation) if cursor else ""
        if after is None:
            return Refused("unknown_cursor")
        size = max(1, min(limit, policy.MAX_LISTED))
        rows = await self._db.fetch(_LIST_NOTES, scope.lane_id, scope.generation, after, size + 1)
        notes = tuple(Note(*row) for row in rows[:size])
        if len(rows) <= size:
            return NotePage(notes, None)
        return NotePage(notes, policy.cursor_after(notes[-1].key, scope.lane_id, scope.generation))

    def open(self, scope: NoteScope, authorize: Callable[[], Awaitable[Allow | Deny]]) -> "Notebook":
        """The notes of one turn, guarded by `authorize`."""
        return Notebook(self, scope, authorize)


class Notebook:
    """The notes of one turn: every call asks the policy first, and gives back its Deny when it says no.

    An outage of the database is waited out: an edit leaves a receipt, so one that is done again happens once.
    """

    def __init__(
        self, notes: Notes, scope: NoteScope, authorize: Callable[[], Awaitable[Allow | Deny]]
    ) -> None:
        self._notes = notes
        self._scope = scope
        self._authorize = authorize

    async def set(
        self, at: Position, key: str, text: str, expires_in: timedelta | None = None
    ) -> Receipt | Refused | NotOwner | Deny:
        """`Notes.set` in this turn's scope."""
        return await self._if_allowed("set", lambda: self._notes.set(self._scope, at, key, text, expires_in))

    async def remove(self, at: Position, key: str) -> Receipt | Refused | NotOwner | Deny:
        """`Notes.remove` in this turn's scope."""
        return await self._if_allowed("remove", lambda: self._notes.remove(self._scope, at, key))

    async def get(self, key: str) -> Note | Deny | None:
        """`Notes.get` in this turn's scope."""
        return await self._if_allowed("get", lambda: self._notes.get(self._scope, key))

    async def list(
        self, cursor: str | None = None, limit: int = policy.MAX_LISTED
    ) -> NotePage | Refused | Deny:
        """`Notes.list` in this turn's scope."""
        return await self._if_allowed("list", lambda: self._notes.list(self._scope, cursor, limit))

    async def _if_allowed(self, act: str, work: Callable[[], Awaitable[T]]) -> T | Deny:
        if (denied := await self._denied()) is None:
            return await through_outages(work)
        log.info("notes.denied", run_id=str(self._scope.run_id), lane_id=self._scope.lane_id, act=act)
        return denied

    async def _denied(self) -> Deny | None:
        try:
            answer = await self._authorize()
        except Exception as error:
            raise PolicyUnavailable from error
        return answer if isinstance(answer, Deny) else None


async def _owns(tx: Any, scope: NoteScope) -> bool:
    owned = await tx.fetchval(_LOCK_LANE, scope.lane_id, scope.generation, scope.epoch, scope.run_id)
    return owned is not None


async def _receipt_of(tx: Any, scope: NoteScope, at: Position) -> Receipt | None:
    row = await tx.fetchrow(_READ_OPERATION, scope.run_id, *at)
    return None if row is None else Receipt(row["act"], row["key"], **jsonio.loads(row["receipt"].encode()))


async def _write(tx: Any, scope: NoteScope, draft: NoteDraft) -> Receipt:
    row = await tx.fetchrow(
        _WRITE_NOTE,
        scope.lane_id,
        scope.generation,
        draft.key,
        draft.body,
        draft.body_bytes,
        draft.expires_in,
    )
    return Receipt(
        "set",
        draft.key,
        changed=True,
        created=row["created"],
        body_bytes=draft.body_bytes,
        updated_at=row["updated_at"].isoformat(),
        expires_at=row["expires_at"].isoformat() if row["expires_at"] else None,
    )


async def _record(tx: Any, scope: NoteScope, at: Position, receipt: Receipt) -> None:
    fields = {
        "changed": receipt.changed,
        "created": receipt.created,
        "body_bytes": receipt.body_bytes,
        "updated_at": receipt.updated_at,
        "expires_at": receipt.expires_at,
    }
    await tx.execute(
        _RECORD_OPERATION,
        scope.lane_id,
        scope.run_id,
        *at,
        receipt.act,
        receipt.key,
        jsonio.dumps(fields).decode(),
    )


_LOCK_LANE = load(__package__, "lock_turn_lane")
_READ_OPERATION = load(__package__, "read_note_operation")
_RECORD_OPERATION = load(__package__, "record_note_operation")
_COUNT_OTHERS = load(__package__, "count_other_notes")
_DELETE_EXPIRED = load(__package__, "delete_expired_notes")
_WRITE_NOTE = load(__package__, "write_note")
_DELETE_NOTE = load(__package__, "delete_note")
_READ_NOTE = load(__package__, "read_note")
_LIST_NOTES = load(__package__, "list_notes")
