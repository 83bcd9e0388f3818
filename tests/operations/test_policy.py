"""What may be released and replayed, for every state there is."""

import pytest

from schemas.reason import Reason
from schemas.run import RunStatus, new_uuid7
from workers.operations.policy import ReservationState, refuse_release, refuse_replay

ENDED = [status for status in RunStatus if status.is_terminal]


@pytest.mark.parametrize("reason", list(Reason))
def test_only_a_proven_event_whose_value_is_kept_is_replayed(reason: Reason) -> None:
    assert refuse_replay(reason, has_value=False) is not None
    allowed = refuse_replay(reason, has_value=True) is None
    assert allowed == reason.replayable


def test_a_reason_of_a_newer_version_is_not_guessed_at() -> None:
    assert refuse_replay(None, has_value=True) is not None


@pytest.mark.parametrize("status", list(RunStatus))
@pytest.mark.parametrize("outcome", [None, "succeeded"])
def test_a_reservation_with_a_run_is_released_only_when_it_ended_and_that_is_meant(
    status: RunStatus, outcome: str | None
) -> None:
    reservation = ReservationState(1, new_uuid7(), status.value, status in ENDED, outcome)

    assert refuse_release(reservation, again=False) is not None
    assert (refuse_release(reservation, again=True) is None) == (status in ENDED)


def test_an_orphan_is_released_and_one_whose_outcome_is_known_is_not() -> None:
    orphan = ReservationState(1, new_uuid7(), None, False, None)
    pruned = ReservationState(1, new_uuid7(), None, False, "succeeded")

    assert refuse_release(orphan, again=False) is None
    assert refuse_release(pruned, again=False) is not None
