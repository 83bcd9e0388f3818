"""Where the ready queue of each group begins, so that a claim does not read dead rows over and over.

Every turn leaves a dead row in the queue's index, and while somebody holds an old snapshot none of them can go: a walk
reads them all. As soon as walks become slow, groups that had something are asked directly, from their low-water mark
on, and the walk, which finds groups that are new here and rows that were committed late, is rarer the slower it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from workers.turns.policy import ReadyLane

SLOW_SECONDS: Final = 0.004
"""A walk that takes less is made for every claim."""
REST_WHEN_IDLE: Final = 25
REST_WHEN_BUSY: Final = 100
"""A slow walk rests so many times its own duration: while known groups have nothing, and while they have something."""
MOST_REST_SECONDS: Final = 0.25
MARGIN: Final = timedelta(seconds=1)
"""How far behind the present a mark stays, for transactions that commit late."""
MOST_GROUPS: Final = 64

Group = tuple[str, str]


class LowWater:
    """What one worker knows of the groups that it took turns of; nothing is promised by it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._marks: dict[Group, datetime] = {}
        self._walk_seconds = 0.0
        self._walked_at = 0.0

    def groups(
        self, agents: Collection[str], accounts: Collection[str], channels: Collection[str]
    ) -> list[Group]:
        """The groups to ask directly, without those accounts and channels; none while walks are quick."""
        if self._walk_seconds < SLOW_SECONDS:
            return []
        return [
            group
            for group in self._marks
            if group[0] in agents and group[1] not in accounts and group[1].partition("/")[0] not in channels
        ]

    def marks(self, groups: Iterable[Group]) -> list[datetime]:
        """From when on each of them may have something."""
        return [self._marks[group] for group in groups]

    def walk_is_due(self, found: int, wanted: int) -> bool:
        """Whether to walk after known groups gave `found` of `wanted` lanes; a walk alone shares out a backlog."""
        if found >= wanted or self._walk_seconds < SLOW_SECONDS:
            return True
        rest = (REST_WHEN_BUSY if found else REST_WHEN_IDLE) * self._walk_seconds
        return self._clock() - self._walked_at >= min(rest, MOST_REST_SECONDS)

    def walked(self, seconds: float, oldest: Iterable[tuple[ReadyLane, datetime]]) -> None:
        """A walk took so long and found these lanes, due since then."""
        self._walk_seconds, self._walked_at = seconds, self._clock()
        for lane, due_at in oldest:
            group = (lane.agent, lane.account)
            self._marks[group] = min(due_at - MARGIN, self._marks.pop(group, due_at))
        for group in list(self._marks)[: max(0, len(self._marks) - MOST_GROUPS)]:
            del self._marks[group]

    def asked(self, found: Sequence[tuple[Group, datetime | None, datetime]]) -> None:
        """Known groups were asked: each with when its oldest lane was due, None for nothing, and the time of asking."""
        for group, due_at, now in found:
            self._marks[group] = min(due_at or now, now) - MARGIN
