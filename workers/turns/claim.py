"""Claim many conversations at once: lock first, read second, freeze, take ownership, commit.

    find_ready (no lock) -> hold the session -> lock lanes, skipping held ones -> read heads and history
    -> record inputs, write snapshots, new epochs -> commit; only then does an agent run.

A single statement that locks and reads would run finished runs again: `skip locked` checks only the row it locks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import structlog

from schemas.event import Event
from schemas.run import RunStatus
from workers.agents.agent import Agent
from workers.memory import recall, snapshot
from workers.memory import store as memory
from workers.memory.limits import Conversations
from workers.postgres.database import Connection, Database
from workers.postgres.failures import is_data_error
from workers.turns import store
from workers.turns.offers import Offers
from workers.turns.opening import Chosen, opened
from workers.turns.policy import (
    NOTHING_PAUSED,
    WIDTH,
    Caps,
    Ended,
    Paused,
    ReadyLane,
    accounts_without_room,
    admits_suspect,
    agents_with_room,
    pick,
    widened,
)
from workers.turns.store import Head, Ownership, Release

DEFAULT_RECALL_WAIT = timedelta(seconds=2)
SUSPECT_WAIT = timedelta(seconds=1)
PAUSED_WAIT = timedelta(seconds=1)
NEWER_WAIT = timedelta(seconds=5)
ASK_OTHERS_SECONDS = 0.025
"""While an account has all the turns it may have, how often to look for other accounts' lanes after finding none."""

log = structlog.get_logger(__name__)


class Claimed(NamedTuple):
    """A turn this worker owns from the moment the claim committed."""

    own: Ownership
    head: Head
    event: Event
    snapshot: snapshot.Snapshot | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What one round brought; `again` asks for another round at once (a held lane was skipped, or more may be due).

    `left` says that something may be due that found no room, so that a turn that ends makes a difference.
    """

    turns: Sequence[Claimed]
    again: bool
    left: bool = False


_NO_ROOM = Claim((), again=False, left=True)


class Claims:
    """Claims turns for one worker session."""

    def __init__(
        self,
        database: Database,
        agents: Mapping[str, Agent],
        conversations: Conversations | None,
        caps: Caps,
        *,
        recall_wait: timedelta = DEFAULT_RECALL_WAIT,
        paused: Callable[[], Paused] = lambda: NOTHING_PAUSED,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._database = database
        self._agents = agents
        self._conversations = conversations
        self._caps = caps
        self._recall_wait = recall_wait
        self._paused = paused
        self._reached = reached
        self._ask_others_at = 0.0
        self._offers = Offers(database, paused)

    async def claim(
        self,
        session_id: UUID,
        active: Sequence[Claimed],
        *,
        settling: Sequence[Claimed] = (),
        waiting: Collection[UUID] = (),
        quick: bool = False,
    ) -> Claim:
        """Claim as many due turns as the caps allow beside `active`; raises SessionGone.

        Turns of `settling` have only their settlement before them and take no slot, and would be lost with the worker
        all the same. The runs of `waiting` wait for a commit at this moment and take no slot; of `quick` agents more
        turns are owned than run.
        """
        caps = widened(self._caps, quick)
        if len(active) >= self._caps.slots * WIDTH:
            return _NO_ROOM
        running = [
            ReadyLane(turn.own.lane_id, turn.head.agent, turn.head.sender)
            for turn in active
            if quick or turn.own.run_id not in waiting
        ]
        unpaused = self._agents.keys() - self._paused().agents
        agents = agents_with_room(unpaused, running, caps)
        if len(running) >= caps.slots or not agents:
            return _NO_ROOM
        suspects = [turn.head.crashes for turn in (*active, *settling) if turn.head.crashes]
        wanted = caps.slots - len(running)
        full_accounts = accounts_without_room(running, caps)
        if full_accounts and time.monotonic() < self._ask_others_at:
            return _NO_ROOM
        offered = await self._offers.due(agents, full_accounts, wanted)
        if full_accounts and not offered:
            self._ask_others_at = time.monotonic() + ASK_OTHERS_SECONDS
        picked = pick(offered, running, caps)
        left = (
            bool(full_accounts)
            or len(agents) < len(unpaused)
            or len(picked) < len(offered)
            or len(offered) >= wanted
        )
        if not picked:
            return Claim((), again=False, left=left)
        # The rotation goes on behind the last that was picked: who was only offered is not passed over.
        self._offers.go_on_behind(picked[-1])
        lanes = [lane.lane_id for lane in picked]
        claim = await self._claim_in_halves(session_id, lanes, suspects)
        return Claim(claim.turns, claim.again or len(lanes) == len(offered) >= wanted, left)

    async def _claim_in_halves(self, session_id: UUID, lanes: Sequence[int], suspects: list[int]) -> Claim:
        """Claim all lanes at once; a data error splits them until the offending one alone is refused."""
        known = len(suspects)
        try:
            return await self._claim(session_id, lanes, suspects)
        except Exception as error:
            if not is_data_error(error):
                raise
            del suspects[known:]
            if len(lanes) == 1:
                await self._refuse(lanes, type(error).__name__)
                return Claim((), again=True)
        middle = len(lanes) // 2
        first = await self._claim_in_halves(session_id, lanes[:middle], suspects)
        second = await self._claim_in_halves(session_id, lanes[middle:], suspects)
        return Claim((*first.turns, *second.turns), again=True)

    async def _refuse(self, lanes: Sequence[int], error: str) -> None:
        """End the head runs of lanes that the database cannot claim, so that they hold nobody up."""
        async with self._database.transaction() as tx:
            heads = await store.read_heads(tx, await store.lock_lanes(tx, lanes), self._recall_wait)
            await self._end(
                tx,
                [
                    (head, Ended(RunStatus.FAILED, f"refused at claim: {error}"))
                    for head in heads
                    if head.owned_by is None
                ],
            )

    async def give_back(self, session_id: UUID, known: Collection[Ownership]) -> int:
        """Release what this session owns beside the turns `known` here; returns how many turns that were.

        A claim whose commit was not heard of leaves such turns: nobody runs them, and their session lives.
        """
        async with self._database.transaction() as tx:
            rows = await store.read_session_turns(tx, session_id)
            held = [
                Ownership(row["lane_id"], row["run_id"], row["epoch"]) for row in rows if not row["finished"]
            ]
            strays = [own for own in held if own not in known]
            if strays:
                await store.release_turns(
                    tx,
                    [
                        Release(own, RunStatus.INTERRUPTED.value, timedelta(0), reason="released")
                        for own in strays
                    ],
                )
        for own in strays:
            log.warning("turn.given_back", run_id=str(own.run_id), epoch=own.epoch)
        return len(strays)

    async def _claim(self, session_id: UUID, lanes: Sequence[int], suspects: list[int]) -> Claim:
        async with self._database.transaction() as tx:
            locked = await store.lock_ready_lanes(tx, lanes, session_id)
            if not locked:
                await store.hold_session(tx, session_id)
            heads = await store.read_heads(tx, locked, self._recall_wait) if locked else []
            chosen = await self._choose(tx, locked, heads, suspects)
            turns = await self._take(tx, session_id, chosen) if chosen else []
            self._reached("claim.before_commit")
        self._reached("claim.committed")
        return Claim(turns, again=len(locked) < len(lanes))

    async def _choose(
        self, tx: Connection, locked: Sequence[int], heads: Sequence[Head], suspects: list[int]
    ) -> list[Chosen]:
        """The heads to take now; the others' lanes leave the ready queue, or wait in it, or lose their head."""
        chosen: list[Chosen] = []
        postponed: dict[int, datetime | timedelta] = {}
        ended: list[tuple[Head, Ended]] = []
        dropped = set(locked) - {head.lane_id for head in heads}
        misqueued: list[int] = []
        for head in heads:
            if head.owned_by is not None or head.status == RunStatus.WAITING:
                dropped.add(head.lane_id)
            elif head.generation != head.lane_generation:
                ended.append((head, Ended(RunStatus.CANCELLED, "conversation reset")))
            elif head.agent not in self._agents:
                misqueued.append(head.lane_id)
            elif self._paused().holds(head.agent, head.channel, head.sender):
                postponed[head.lane_id] = PAUSED_WAIT
            elif not head.due:
                postponed[head.lane_id] = head.due_at
            elif not admits_suspect(self._caps.slots, head.crashes, suspects):
                postponed[head.lane_id] = SUSPECT_WAIT
            elif isinstance(opening := opened(head), Ended):
                ended.append((head, opening))
            elif opening is None:
                postponed[head.lane_id] = NEWER_WAIT
            else:
                chosen.append(opening)
                if head.crashes:
                    suspects.append(head.crashes)
        if dropped or misqueued:
            await store.drop_ready(tx, sorted({*dropped, *misqueued}))
            await store.requeue_lanes(tx, misqueued)
        if postponed:
            await store.postpone_ready(tx, postponed)
        await self._end(tx, ended)
        return chosen

    async def _end(self, tx: Connection, ended: Sequence[tuple[Head, Ended]]) -> None:
        """End runs that cannot be claimed; their lanes, locked by the caller, go on with the next head."""
        if not ended:
            return
        held = [Ownership(head.lane_id, head.run_id, head.epoch) for head, _ in ended]
        lanes = [own.lane_id for own in held]
        statuses = [ending.status.value for _, ending in ended]
        reasons = [ending.reason for _, ending in ended]
        await store.settle_runs(tx, held, statuses, reasons, [None] * len(held))
        await store.drop_ready(tx, lanes)
        await store.mark_next_ready(tx, lanes, self._recall_wait)
        for head, ending in ended:
            log.error("turn.not_started", run_id=str(head.run_id), agent=head.agent, reason=ending.reason)

    async def _take(self, tx: Connection, session_id: UUID, chosen: Sequence[Chosen]) -> list[Claimed]:
        heads = [each.head for each in chosen]
        frozen = await self._freeze(tx, chosen)
        encoded = [
            head.snapshot if past is None or head.snapshot is not None else snapshot.encode(past)
            for head, past in zip(heads, frozen, strict=True)
        ]
        epochs = await store.take_lanes(
            tx, heads, encoded, [stored and snapshot.digest(stored) for stored in encoded], session_id
        )
        return [
            Claimed(Ownership(head.lane_id, head.run_id, epochs[head.lane_id]), head, event, past)
            for (head, event, _), past in zip(chosen, frozen, strict=True)
        ]

    async def _freeze(self, tx: Connection, chosen: Sequence[Chosen]) -> list[snapshot.Snapshot | None]:
        """Each head's snapshot: the one it was first claimed with, or a new one; None where it keeps no memory."""
        new = [(head, event) for head, event, past in chosen if head.memory_key is not None and past is None]
        made: dict[int, snapshot.Snapshot] = {}
        if new and self._conversations is not None:
            limits = self._conversations.limits
            lane_ids = [head.lane_id for head, _ in new]
            generations = [head.lane_generation for head, _ in new]
            notes = await memory.read_notes(tx, lane_ids, generations)
            history = await memory.read_history(
                tx,
                lane_ids,
                generations,
                [head.event_id for head, _ in new],
                limits.max_items,
                limits.retention,
                limits.max_history_bytes,
            )
            expired = await memory.record_inputs(
                tx,
                [
                    memory.input_item(
                        head.lane_id,
                        head.lane_generation,
                        head.run_id,
                        head.event_id,
                        event.text,
                        limits.max_item_bytes,
                    )
                    for head, event in new
                ],
                limits.retention,
            )
            if trimmed := [head for head, _ in new if head.lane_id in expired or limits.trims_at(head.epoch)]:
                await memory.trim(
                    tx,
                    [head.lane_id for head in trimmed],
                    [head.lane_generation for head in trimmed],
                    limits.max_stored_items,
                    limits.retention,
                )
            made = {lane_id: recall.select(history[lane_id], notes[lane_id], limits) for lane_id in lane_ids}
        return [made.get(head.lane_id) if past is None else past for head, _, past in chosen]
