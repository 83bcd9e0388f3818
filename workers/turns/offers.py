"""Lanes to try to claim, in fair rotation: every agent and account comes by before any has its second turn.

    while walks are quick: a walk over the groups from where the rotation stands
    while they are slow:   new groups between the known ones -> the known ones, asked directly -> now and then a walk

Nothing is locked and nothing promised: what is offered may be claimed by somebody else meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

from workers.postgres.database import Database
from workers.turns import store
from workers.turns.low_water import LowWater
from workers.turns.policy import Paused, ReadyLane, in_turns

GROUPS_A_SCAN: Final = 64
SCANS_A_CLAIM: Final = 32
_START: Final = ("", "")


class Offers:
    """One worker's place in the rotation, and what it knows of the ready queue."""

    def __init__(self, database: Database, paused: Callable[[], Paused]) -> None:
        self._database = database
        self._paused = paused
        self._after = _START
        # Whether one scan from the start saw every group and all that is due: the rotation then needs no second one.
        self._few = True
        self._low_water = LowWater()

    def go_on_behind(self, lane: ReadyLane) -> None:
        """The next offers begin behind this lane's agent and account."""
        self._after = (lane.agent, lane.account)

    async def due(self, agents: Sequence[str], full_accounts: Sequence[str], wanted: int) -> list[ReadyLane]:
        """Due lanes in turns from where the rotation stands, once around at most, until there are `wanted` groups."""
        paused = self._paused()
        if self._low_water.slow:
            await self._meet_new_groups(agents)
        known = await self._offer_known(agents, [*full_accounts, *paused.accounts], paused.channels, wanted)
        if not self._low_water.walk_is_due():
            return in_turns(known, self._after)
        offered = {lane.lane_id: lane for lane in known}
        due: list[tuple[ReadyLane, datetime]] = []
        begun, few = self._after, self._few
        after = _START if few else begun
        from_start = after == _START
        async with self._database.acquire() as connection:
            started = time.monotonic()
            for _ in range(SCANS_A_CLAIM):
                lanes, end = await store.find_ready(
                    connection,
                    agents,
                    [*full_accounts, *paused.accounts],
                    [*paused.channels],
                    after,
                    groups=GROUPS_A_SCAN,
                    per_group=wanted,
                    at_most=2 * wanted,
                )
                due += lanes
                for lane, _ in lanes:
                    offered.setdefault(lane.lane_id, lane)
                self._few = after == _START and end is None and len(lanes) < 2 * wanted
                if self._few:
                    after = begun
                    break
                if few:
                    few, after, from_start = False, begun, begun == _START
                    continue
                after = end or _START
                groups = {(lane.agent, lane.account) for lane in offered.values()}
                if len(groups) >= wanted or (end is None and from_start):
                    break
                from_start = from_start or end is None
            took = time.monotonic() - started
        self._after = after
        self._low_water.walked(took, due)
        return in_turns(offered.values(), begun)

    async def _meet_new_groups(self, agents: Sequence[str]) -> None:
        async with self._database.acquire() as connection:
            for _ in range(SCANS_A_CLAIM):
                found = await store.find_new_groups(connection, agents, self._low_water.known)
                for row in found:
                    self._low_water.met((row["agent"], row["account"]), row["due_at"], row["now"])
                if not found or self._low_water.full:
                    break

    async def _offer_known(
        self, agents: Sequence[str], accounts: Collection[str], channels: Collection[str], wanted: int
    ) -> list[ReadyLane]:
        """Due lanes of the groups that are asked directly; none where only a walk is made."""
        groups = self._low_water.groups(agents, accounts, channels)
        if not groups:
            return []
        async with self._database.acquire() as connection:
            rows = await store.find_ready_in(connection, groups, self._low_water.marks(groups), wanted)
        first = {(row["agent"], row["account"]): row for row in reversed(rows)}
        self._low_water.asked([(group, row["due_at"], row["now"]) for group, row in first.items()])
        return [
            ReadyLane(row["lane_id"], row["agent"], row["account"])
            for row in rows
            if row["lane_id"] is not None
        ]
