"""Settlement: one transaction ends a turn, and the next head becomes ready in a later statement of it.

Own success is not lost ownership: when a commit's outcome is unknown the batch is settled again, and a run that
already stands under this epoch as it was to be left counts as settled. The agent is never run again for the
database's sake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, assert_never

import structlog

from schemas.run import RunStatus
from workers.agents.errors import LostOwnership
from workers.delivery.journal import abandon_pending
from workers.postgres.database import Connection, Database
from workers.postgres.group_commit import GroupCommit
from workers.turns import store
from workers.turns.claim import DEFAULT_RECALL_WAIT, Claimed
from workers.turns.policy import Ended, LetGo, TryAgain
from workers.turns.store import Release

log = structlog.get_logger(__name__)


class Settlement(NamedTuple):
    """How the turn ended, with its usage as JSON text."""

    turn: Claimed
    ending: Ended | TryAgain | LetGo
    usage: str | None = None


class Settlements:
    """Owns the group commit of settlements."""

    def __init__(
        self,
        database: Database,
        *,
        recall_wait: timedelta = DEFAULT_RECALL_WAIT,
        patience: timedelta | None = None,
        next_ready: Callable[[], None] = lambda: None,
        observe: Callable[[int, float], None] | None = None,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        """`next_ready` is called after a commit that put something into the ready queue."""
        self._database = database
        self._recall_wait = recall_wait
        self._next_ready = next_ready
        self._reached = reached
        self._queue: GroupCommit[Settlement, None] = GroupCommit(
            "settlement", self._commit, patience=patience, observe=observe
        )

    async def settle(self, settlement: Settlement) -> None:
        """Return once the turn has ended in the database; raises LostOwnership."""
        await self._queue.submit(settlement)

    async def close(self) -> None:
        await self._queue.close()

    async def _commit(self, settlements: Sequence[Settlement]) -> Sequence[Exception | None]:
        async with self._database.transaction() as tx:
            owned = await store.lock_owned(tx, [s.turn.own for s in settlements])
            kept = [s for s in settlements if (s.turn.own.lane_id, s.turn.own.epoch) in owned]
            queued = await self._end(tx, [s for s in kept if isinstance(s.ending, Ended)])
            queued += await self._release(tx, [s for s in kept if not isinstance(s.ending, Ended)])
            lost = [s for s in settlements if (s.turn.own.lane_id, s.turn.own.epoch) not in owned]
            outcomes = await store.read_outcomes(tx, [s.turn.own.run_id for s in lost]) if lost else {}
            self._reached("settle.before_commit")
        self._reached("settle.committed")
        if queued:
            self._next_ready()
        return [
            None
            if (s.turn.own.lane_id, s.turn.own.epoch) in owned
            or outcomes.get(s.turn.own.run_id) == (s.turn.own.epoch, *_left_by(s))
            else LostOwnership(s.turn.own.run_id, s.turn.own.epoch)
            for s in settlements
        ]

    async def _end(self, tx: Connection, settlements: Sequence[Settlement]) -> int:
        if not settlements:
            return 0
        endings = [s.ending for s in settlements if isinstance(s.ending, Ended)]
        held = [s.turn.own for s in settlements]
        await store.settle_runs(
            tx,
            held,
            [ending.status.value for ending in endings],
            [ending.reason for ending in endings],
            [s.usage for s in settlements],
        )
        cancelled = [s.turn.own.run_id for s in settlements if _is_cancelled(s)]
        if cancelled:
            await abandon_pending(tx, cancelled, "abandoned: run cancelled")
        withheld = [
            s.turn.own for s in settlements if isinstance(s.ending, Ended) and s.ending.withhold_input
        ]
        if withheld:
            await store.withhold_inputs(tx, withheld)
        return await store.mark_next_ready(tx, sorted(own.lane_id for own in held), self._recall_wait)

    async def _release(self, tx: Connection, settlements: Sequence[Settlement]) -> int:
        if settlements:
            await store.release_turns(tx, [_release_of(s) for s in settlements])
        return len(settlements)


def _is_cancelled(settlement: Settlement) -> bool:
    return isinstance(settlement.ending, Ended) and settlement.ending.status is RunStatus.CANCELLED


def _left_by(settlement: Settlement) -> tuple[str, str | None]:
    """Status and reason that this settlement leaves its run with."""
    if isinstance(settlement.ending, Ended):
        return settlement.ending.status.value, settlement.ending.reason
    release = _release_of(settlement)
    return release.status, release.reason


def _release_of(settlement: Settlement) -> Release:
    own = settlement.turn.own
    match settlement.ending:
        case TryAgain(wait, reason, charged):
            return Release(own, RunStatus.QUEUED.value, wait, retries=int(charged), reason=reason)
        case LetGo(reason):
            return Release(own, RunStatus.INTERRUPTED.value, timedelta(0), reason=reason)
        case Ended():
            raise AssertionError("an ended turn is not released")
        case never:
            assert_never(never)
