"""The step journal: what an agent did is committed, under its turn's lock, before the agent goes on.

Writes of all turns that are ready go in one transaction (group commit). A reply and its step commit together; the
delivery command is published after the commit, and a crash between the two is found by the reconciler. A hand-off
commits with its step as well: reservation, queued run and record are there together or not at all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import structlog

from schemas.delivery import ReplyKey
from schemas.run import new_uuid7
from workers.admission.policy import Candidate
from workers.admission.service import DEFAULT_IDEMPOTENCY_TTL, Admission
from workers.admission.store import make_lanes
from workers.agents.errors import LostOwnership
from workers.agents.journal import Emit, StepRecord
from workers.delivery.journal import NewDelivery, journal
from workers.postgres.database import Connection, Database
from workers.postgres.group_commit import GroupCommit
from workers.turns import store
from workers.turns.claim import Claimed

log = structlog.get_logger(__name__)


class JournalWrite(NamedTuple):
    turn: Claimed
    step: StepRecord
    emit: Emit | None
    hand_off: Candidate | None = None


class StepJournal:
    """Owns the group commit of all turns' steps and replies."""

    def __init__(
        self,
        database: Database,
        published: Callable[[Sequence[int]], None],
        *,
        patience: timedelta | None = None,
        observe: Callable[[int, float], None] | None = None,
        finished: Callable[[str, str], None] = lambda agent, kind: None,
        handed_off: Callable[[], None] = lambda: None,
        idempotency_ttl: timedelta = DEFAULT_IDEMPOTENCY_TTL,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`finished` hears the agent and kind of each step whose end was journalled, `handed_off` of queued runs."""
        self._database = database
        self._published = published
        self._finished = finished
        self._handed_off = handed_off
        self._admission = Admission(database, idempotency_ttl=idempotency_ttl)
        self._reached = reached
        self._waits: dict[UUID, float] = {}
        self.waiting: Counter[UUID] = Counter()
        """Runs whose turn waits for its journal at this moment."""
        self._queue: GroupCommit[JournalWrite, None] = GroupCommit(
            "journal", self._commit, patience=patience, observe=observe
        )

    def of(self, turn: Claimed, recorded: Mapping[tuple[int, int], StepRecord]) -> TurnSteps:
        """The journal port of one turn, with what an earlier life of its run recorded."""
        return TurnSteps(self._queue, turn, recorded, self._waits, self.waiting)

    def take_wait(self, run_id: UUID) -> float:
        """Seconds that the run's turn waited for its journal so far; asked once, when the turn has ended."""
        return self._waits.pop(run_id, 0.0)

    async def close(self) -> None:
        await self._queue.close()

    async def _commit(self, writes: Sequence[JournalWrite]) -> Sequence[Exception | None]:
        async with self._database.transaction() as tx:
            await _lock_shared_lanes(tx, writes)
            owned = await store.lock_owned(tx, [write.turn.own for write in writes])
            kept = [w for w in writes if (w.turn.own.lane_id, w.turn.own.epoch) in owned]
            deliveries = [row for write in kept if write.emit for row in _deliveries(write, write.emit)]
            published = await journal(tx, deliveries) if deliveries else []
            handed_off = [_as_run(write, write.hand_off) for write in kept if write.hand_off]
            if handed_off:
                await self._admission.admit_in(tx, handed_off)
            if kept:
                await store.insert_steps(tx, [(write.turn.own, write.step) for write in kept])
            self._reached("journal.before_commit")
        self._reached("journal.committed")
        if published:
            self._published(published)
        if handed_off:
            self._handed_off()
        for write in kept:
            if write.step.state == "finished":
                self._finished(write.turn.head.agent, write.step.kind)
        return [
            None
            if (w.turn.own.lane_id, w.turn.own.epoch) in owned
            else LostOwnership(w.turn.own.run_id, w.turn.own.epoch)
            for w in writes
        ]


async def _lock_shared_lanes(tx: Connection, writes: Sequence[JournalWrite]) -> None:
    """Before anything else is locked: the lanes of hand-offs that others lock too, in one order with the turns' own."""
    shared = [w.hand_off for w in writes if w.hand_off is not None and w.hand_off.lane_kind == "key"]
    if shared:
        await make_lanes(tx, shared)
        lanes = [write.turn.own.lane_id for write in writes]
        await store.lock_with_keys(tx, lanes, [run.lane_key for run in shared])


def _as_run(write: JournalWrite, hand_off: Candidate) -> Candidate:
    return replace(hand_off, traceparent=write.turn.head.traceparent)


def _deliveries(write: JournalWrite, emit: Emit) -> list[NewDelivery]:
    head = write.turn.head
    whole = ReplyKey(head.run_id, write.step.step, write.step.call)
    several = len(emit.chunks) > 1
    return [
        NewDelivery(
            id=new_uuid7(),
            key=str(whole._replace(chunk=chunk) if several else whole),
            reply_key=str(whole),
            chunk=chunk,
            run_id=head.run_id,
            lane_id=head.lane_id,
            generation=head.lane_generation,
            agent=head.agent,
            recalled=emit.recalled and head.memory_key is not None,
            channel=emit.channel,
            account=emit.account,
            address=emit.address,
            text=text,
            traceparent=head.traceparent,
        )
        for chunk, text in enumerate(emit.chunks)
    ]


class TurnSteps:
    """The `TurnJournal` that an agent's turn writes to."""

    def __init__(
        self,
        queue: GroupCommit[JournalWrite, None],
        turn: Claimed,
        recorded: Mapping[tuple[int, int], StepRecord],
        waits: dict[UUID, float],
        waiting: Counter[UUID],
    ) -> None:
        self._queue = queue
        self._turn = turn
        self._waits = waits
        self._waiting = waiting
        self.before_wait: Callable[[], None] = lambda: None
        """Called when a write is about to wait for its commit."""
        self.recorded = recorded

    async def write(
        self, record: StepRecord, emit: Emit | None = None, hand_off: Candidate | None = None
    ) -> None:
        """Return once `record`, with its reply or hand-off if any, has committed; raises LostOwnership."""
        run_id, asked = self._turn.own.run_id, time.monotonic()
        self._waiting[run_id] += 1
        self.before_wait()
        try:
            await self._queue.submit(JournalWrite(self._turn, record, emit, hand_off))
        except LostOwnership:
            log.warning(
                "ownership.lost",
                run_id=str(self._turn.own.run_id),
                epoch=self._turn.own.epoch,
                refused=record.kind,
            )
            raise
        finally:
            self._waiting[run_id] -= 1
            if not self._waiting[run_id]:
                del self._waiting[run_id]
            self._waits[run_id] = self._waits.get(run_id, 0.0) + time.monotonic() - asked
