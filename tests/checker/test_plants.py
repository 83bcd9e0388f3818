"""Each planted fault still fits the code and breaks a promise that the checker knows."""

import pytest

from tests.checker.planted import Plant, plants
from tests.checker.promises import PROMISES
from tests.replicas.faults import FAULTS

ALL = plants()


def test_there_are_at_least_five() -> None:
    assert len(ALL) >= 5


@pytest.mark.parametrize("plant", ALL.values(), ids=ALL)
def test_a_planted_fault_applies_and_names_what_it_breaks_and_when(plant: Plant) -> None:
    plant.check()
    assert plant.breaks in PROMISES
    assert plant.fault in FAULTS
