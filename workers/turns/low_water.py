"""Where the ready queue of each group begins, so that a claim does not read dead rows over and over.

Every turn leaves a dead row in the queue's index, and while somebody holds an old snapshot none of them can go: a walk
reads them all. As soon as walks become slow, groups that had something are asked directly, from their low-water mark
on, and new groups are looked for between the known ones. The walk, which finds rows that were committed late and groups
beyond those that can be known, is rarer the slower it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from workers.turns.policy import ReadyLane

SLOW_SECONDS: Final = 0.004
"""A walk that takes less is made for every claim."""
REST: Final = 100
"""A slow walk rests so many times its own duration."""
MOST_REST_SECONDS: Final = 5.0
MOST_REST_AMONG_MANY_SECONDS: Final = 0.25
"""At most so long, and not longer than this while there are more groups than can be known."""
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

    @property
    def slow(self) -> bool:
        """Whether the last walk took too long to make one for every claim."""
        return self._walk_seconds >= SLOW_SECONDS

    @property
    def known(self) -> list[Group]:
        """Every group with a mark, of whatever agent."""
        return list(self._marks)

    @property
    def full(self) -> bool:
        """Whether there may be more groups than can be known."""
        return len(self._marks) >= MOST_GROUPS

    def groups(
        self, agents: Collection[str], accounts: Collection[str], channels: Collection[str]
    ) -> list[Group]:
        """The groups to ask directly, without those accounts and channels; none while walks are quick."""
        if not self.slow:
            return []
        return [
            group
            for group in self._marks
            if group[0] in agents and group[1] not in accounts and group[1].partition("/")[0] not in channels
        ]

    def marks(self, groups: Iterable[Group]) -> list[datetime]:
        """From when on each of them may have something."""
        return [self._marks[group] for group in groups]

    def walk_is_due(self) -> bool:
        """Whether to walk for this claim."""
        if not self.slow:
            return True
        most = MOST_REST_AMONG_MANY_SECONDS if self.full else MOST_REST_SECONDS
        return self._clock() - self._walked_at >= min(REST * self._walk_seconds, most)

    def met(self, group: Group, due_at: datetime, now: datetime) -> None:
        """A group that was not known has something, its oldest due since (or from) `due_at`."""
        self._marks[group] = min(due_at, now) - MARGIN
        self._forget_beyond_most()

    def walked(self, seconds: float, oldest: Iterable[tuple[ReadyLane, datetime]]) -> None:
        """A walk took so long and found these lanes, due since then."""
        self._walk_seconds, self._walked_at = seconds, self._clock()
        for lane, due_at in oldest:
            group = (lane.agent, lane.account)
            self._marks[group] = min(due_at - MARGIN, self._marks.pop(group, due_at))
        self._forget_beyond_most()

    def asked(self, found: Sequence[tuple[Group, datetime | None, datetime]]) -> None:
        """Known groups were asked: each with when its oldest lane was due, None for nothing, and the time of asking."""
        for group, due_at, now in found:
            self._marks[group] = min(due_at or now, now) - MARGIN

    def _forget_beyond_most(self) -> None:
        for group in list(self._marks)[: max(0, len(self._marks) - MOST_GROUPS)]:
            del self._marks[group]
