"""What an operator may do to a run, a reservation, a conversation or a dead letter, decided from values."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.reason import Reason

CANCELLED_BY_OPERATOR: Final = "cancelled by operator"
CANCELLED_BY_RESET: Final = "conversation was reset"
CANCELLED_BY_DELETE: Final = "conversation was deleted"


@dataclass(frozen=True, slots=True)
class RunState:
    """A run as read under the lock of its lane; `owns` while the lane's turn is its own, `held` while a worker
    session holds that turn.
    """

    run_id: UUID
    lane_id: int
    status: str
    finished: bool
    owns: bool
    held: bool
    epoch: int


@dataclass(frozen=True, slots=True)
class EndNow:
    """Nobody works on it: it ends in this transaction."""


@dataclass(frozen=True, slots=True)
class AskWorker:
    """A worker runs it: the worker stops the agent and settles the run."""


@dataclass(frozen=True, slots=True)
class AlreadyOver:
    """It ended before, with `status`."""

    status: str


CancelDecision = EndNow | AskWorker | AlreadyOver


def decide_cancel(run: RunState) -> CancelDecision:
    """How a cancel of `run` is carried out."""
    if run.finished:
        return AlreadyOver(run.status)
    return AskWorker() if run.owns and run.held else EndNow()


@dataclass(frozen=True, slots=True)
class ReservationState:
    """A reservation with what became of its run: `run_status` is None where the run is missing."""

    reservation_id: int
    run_id: UUID
    run_status: str | None
    run_finished: bool
    outcome: str | None

    @property
    def orphan(self) -> bool:
        """True where neither a run nor its outcome is left to say what happened."""
        return self.run_status is None and self.outcome is None


def refuse_release(reservation: ReservationState, *, again: bool) -> tuple[str, str] | None:
    """Why the reservation must stay, and what to do instead; None where it may go.

    `again`: the operator knows that the event ran and wants it to run a second time.
    """
    if reservation.run_status is not None and not reservation.run_finished:
        return (
            f"its run {reservation.run_id} is {reservation.run_status}",
            f"wait for it, or end it with `parley runs cancel {reservation.run_id}`",
        )
    if not reservation.orphan and not again:
        ended = reservation.run_status or reservation.outcome
        return (
            f"its run {reservation.run_id} ended {ended}",
            "give --again to let the event run a second time",
        )
    return None


def refuse_replay(reason: Reason | None, has_value: bool) -> tuple[str, str] | None:
    """Why a dead letter cannot be sent in again, and what to do instead; None where it can."""
    if reason is None:
        return "its reason is unknown to this version", "look at it with `parley dead show`"
    if reason is Reason.UNAUTHENTICATED:
        return "nobody ever proved who sent it (unauthenticated)", "let its adapter send the event again"
    if not reason.replayable or not has_value:
        return f"its value cannot be used ({reason.value})", "let its adapter send the event again"
    return None
