"""The step journal: what an agent did is committed, under its turn's lock, before the agent goes on.

Writes of all turns that are ready go in one transaction (group commit). A reply and its step commit together; the
delivery command is published after the commit, and a crash between the two is found by the reconciler.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import structlog

from schemas.delivery import ReplyKey
from schemas.run import new_uuid7
from workers.agents.errors import LostOwnership
from workers.agents.journal import Emit, StepRecord
from workers.delivery.journal import NewDelivery, PublishedDelivery, journal
from workers.postgres.database import Database
from workers.postgres.group_commit import GroupCommit
from workers.turns import store
from workers.turns.claim import Claimed

log = structlog.get_logger(__name__)


class JournalWrite(NamedTuple):
    turn: Claimed
    step: StepRecord
    emit: Emit | None


class StepJournal:
    """Owns the group commit of all turns' steps and replies."""

    def __init__(
        self,
        database: Database,
        published: Callable[[Sequence[PublishedDelivery]], None],
        *,
        patience: timedelta | None = None,
        observe: Callable[[int, float], None] | None = None,
        finished: Callable[[str, str], None] = lambda agent, kind: None,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`finished` hears the agent and kind of each step whose end was journalled."""
        self._database = database
        self._published = published
        self._finished = finished
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
            owned = await store.lock_owned(tx, [write.turn.own for write in writes])
            kept = [w for w in writes if (w.turn.own.lane_id, w.turn.own.epoch) in owned]
            deliveries = [row for write in kept if write.emit for row in _deliveries(write, write.emit)]
            published = await journal(tx, deliveries) if deliveries else []
            if kept:
                await store.insert_steps(tx, [(write.turn.own, write.step) for write in kept])
            self._reached("journal.before_commit")
        self._reached("journal.committed")
        if published:
            self._published(published)
        for write in kept:
            if write.step.state == "finished":
                self._finished(write.turn.head.agent, write.step.kind)
        return [
            None
            if (w.turn.own.lane_id, w.turn.own.epoch) in owned
            else LostOwnership(w.turn.own.run_id, w.turn.own.epoch)
            for w in writes
        ]


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

    async def write(self, record: StepRecord, emit: Emit | None = None) -> None:
        """Return once `record`, with its reply if any, has committed; raises LostOwnership."""
        run_id, asked = self._turn.own.run_id, time.monotonic()
        self._waiting[run_id] += 1
        self.before_wait()
        try:
            await self._queue.submit(JournalWrite(self._turn, record, emit))
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
