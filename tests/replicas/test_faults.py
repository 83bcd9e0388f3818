"""Three workers on three brokers through each fault, and copies with a planted fault that must be caught by name."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.checker.planted import plants
from tests.replicas.faults import FAULTS

ROOT: Final = Path(__file__).parents[2]
MOST_SECONDS: Final = 400
SHOWN: Final = {
    "join": ("EN-7", "EN-16"),
    "leave": ("EN-40", "EN-7"),
    "kill": ("EN-7", "EN-18", "EN-21"),
    "pause": ("EN-17", "EN-18"),
    "broker": ("EN-39", "EN-7"),
    "controller": ("EN-39", "EN-7"),
    "postgres": ("EN-42", "EN-39"),
}
PLANTS: Final = plants()


def played(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.replicas", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )


def test_each_fault_says_which_rules_it_shows() -> None:
    assert SHOWN.keys() == FAULTS.keys()


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.timeout(MOST_SECONDS + 10)
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=pytest.mark.rule(*rules)) for fault, rules in SHOWN.items()]
)
def test_every_promise_holds_on_three_replicas_under(fault: str) -> None:
    ended = played("--fault", fault)

    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.timeout(MOST_SECONDS + 10)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_caught_by_the_name_of_what_it_breaks(name: str) -> None:
    ended = played("--plant", name)

    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert re.search(rf"^{PLANTS[name].breaks} broken by", ended.stdout, re.MULTILINE)
