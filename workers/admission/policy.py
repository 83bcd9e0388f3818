"""What becomes of an event whose reservation already exists, for one agent.

known event id,   same payload         -> Duplicate
known event id,   another payload      -> Mismatch, whatever state the first run is in
its own run                            -> Admitted: the commit whose answer was lost
only the message identity is known     -> Duplicate, payloads are not compared (twin events of one message)
no run and no recorded outcome         -> Heal while the lane was never reset, else Unhealable
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from schemas.identity import Identity

LaneKind = Literal["conversation", "key", "run"]


# Made for every turn: a frozen one costs three times as much to make.
@dataclass(slots=True)
class Candidate:
    """One event for one agent, verified and authorized, asking for a run.

    `lane_key` is a 32-byte digest; `identity` is given exactly when `lane_kind` is "conversation".
    """

    run_id: UUID
    agent: str
    lane_kind: LaneKind
    lane_key: bytes
    identity: Identity | None
    channel: str
    account: str
    event_id: str
    message_id: str | None
    payload_hash: bytes
    hash_version: int
    event: bytes
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation as found; `has_run` is false where its run is missing (a restored backup).

    `lane_generation` is that of the lane it was made in, None where the lane is missing as well.
    """

    reservation_id: int
    run_id: UUID
    payload_hash: bytes
    hash_version: int
    generation: int
    outcome: str | None
    has_run: bool
    lane_generation: int | None


@dataclass(frozen=True, slots=True)
class Admitted:
    run_id: UUID


@dataclass(frozen=True, slots=True)
class Duplicate:
    run_id: UUID


@dataclass(frozen=True, slots=True)
class Mismatch:
    run_id: UUID


@dataclass(frozen=True, slots=True)
class Heal:
    reservation_id: int


@dataclass(frozen=True, slots=True)
class Healed:
    run_id: UUID


@dataclass(frozen=True, slots=True)
class Unhealable:
    run_id: UUID


Outcome = Admitted | Duplicate | Mismatch | Healed | Unhealable


def decide(
    candidate: Candidate,
    by_event: Reserved | None,
    by_message: Reserved | None,
    lane_generation: int,
    being_queued: Set[UUID] = frozenset(),
) -> Admitted | Duplicate | Mismatch | Heal | Unhealable:
    """What to do with a candidate whose reservation could not be made; at least one reservation is given.

    `lane_generation` is that of the candidate's own lane, `being_queued` the runs that the same transaction queues.
    """
    if by_event is not None and _differs(candidate, by_event):
        return Mismatch(by_event.run_id)
    reserved = by_event or by_message
    assert reserved is not None
    if reserved.has_run and reserved.run_id == candidate.run_id:
        return Admitted(candidate.run_id)
    if reserved.has_run or reserved.outcome is not None or reserved.run_id in being_queued:
        return Duplicate(reserved.run_id)
    generation = lane_generation if reserved.lane_generation is None else reserved.lane_generation
    if reserved.generation == generation == 0:
        return Heal(reserved.reservation_id)
    return Unhealable(reserved.run_id)


def _differs(candidate: Candidate, reserved: Reserved) -> bool:
    # Hashes of two versions cover different fields and say nothing about each other.
    return candidate.hash_version == reserved.hash_version and candidate.payload_hash != reserved.payload_hash
