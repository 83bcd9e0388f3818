"""What the checker goes by: records as they were found, in plain values.

Times are compared with their like only: the database's with each other, and the monotonic nanoseconds that all
processes of one machine share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

IDEMPOTENT = "idempotent"
ASKABLE = "look_up_definite"
SILENT = "none"


@dataclass(frozen=True, slots=True)
class Published:
    """An event whose publish was acknowledged, in the order of its chat; `capability` is that of its channel."""

    event_id: str
    chat: str
    sequence: int
    channel: str
    capability: str
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    agent: str
    event_id: str
    run_id: str
    outcome: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """`position` counts within the lane that serializes it; `bound` runs have a conversation to recall."""

    run_id: str
    lane: int
    bound: bool
    position: int
    agent: str
    event_id: str
    status: str
    reason: str | None
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Delivery:
    key: str
    run_id: str
    recalled: bool
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Step:
    """A journalled step and the epoch that its turn wrote it under."""

    run_id: str
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Held:
    """Something that says of itself that it is owned or under way; `owner_lives` is the database's own word."""

    what: str
    owner_lives: bool


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request that the receiver accepted, in the order of arrival; `text` names agent and event."""

    at_ns: int
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """What a turn wrote of a step of its own: it asked for the commit at `before_ns`, and had it at `after_ns`.

    A line that is not `fresh` is of a step that an earlier turn of the run had committed: it proves no ownership.
    """

    turn: str
    run_id: str
    word: str
    fresh: bool
    before_ns: int
    after_ns: int
    recalled: tuple[tuple[str, str], ...] = ()
    """At `begin`: role and text of each recalled record, oldest first."""


@dataclass(frozen=True)
class Evidence:
    """All there is to go by."""

    published: Sequence[Published]
    reservations: Sequence[Reservation]
    runs: Sequence[Run]
    deliveries: Sequence[Delivery]
    steps: Sequence[Step]
    held: Sequence[Held]
    accepted: Sequence[Accepted]
    lines: Sequence[Line]

    @cached_property
    def runs_of(self) -> Mapping[tuple[str, str], list[Run]]:
        """By agent and event."""
        found: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in self.runs:
            found[run.agent, run.event_id].append(run)
        return found

    @cached_property
    def lanes(self) -> Mapping[int, list[Run]]:
        """The runs of each lane in admission order."""
        found: defaultdict[int, list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda run: run.position):
            found[run.lane].append(run)
        return found

    @cached_property
    def deliveries_of(self) -> Mapping[str, list[Delivery]]:
        """By run."""
        found: defaultdict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            found[delivery.run_id].append(delivery)
        return found

    @cached_property
    def lines_of(self) -> Mapping[str, list[Line]]:
        """By run, in the order of their commits."""
        found: defaultdict[str, list[Line]] = defaultdict(list)
        for line in sorted(self.lines, key=lambda line: line.before_ns):
            found[line.run_id].append(line)
        return found

    @cached_property
    def accepted_of(self) -> Mapping[str, list[Accepted]]:
        """By text, in the order of arrival."""
        found: defaultdict[str, list[Accepted]] = defaultdict(list)
        for accepted in self.accepted:
            found[accepted.text].append(accepted)
        return found

    @cached_property
    def event(self) -> Mapping[str, Published]:
        """By event id."""
        return {each.event_id: each for each in self.published}


def answer_to(agent: str, event_id: str) -> str:
    """The text of the one reply that an agent gives to an event."""
    return f"{agent} answers {event_id}"
