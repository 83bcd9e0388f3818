"""`python -m tests.replicas [--plant NAME] [--fault NAME]` plays the faults and says which promises held.

Exit code 0: all hold; 1: some are broken, and named; 2: a patch did not apply, or the run did not finish.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.checker.planted import ROOT, DoesNotApply, Plant, plants
from tests.replicas.faults import FAULTS
from tests.replicas.fleet import package_in
from tests.replicas.report import breaches, table
from tests.replicas.scenario import Outcome, play
from tests.replicas.services import services

HOLDS, BROKEN, NOT_FINISHED = 0, 1, 2
TRIES = 3
"""Plays for a planted fault to show itself: it takes a turn that writes at the wrong moment."""


class WrongTree(Exception):
    """Workers would take their code from elsewhere than the tree they are to run."""


def run(faults: Sequence[str], plant: Plant | None) -> list[Outcome]:
    """Play the faults one after the other, on the checkout or on a copy with `plant`; prints as it goes."""
    began = time.monotonic()

    def say(what: str, fault: str = "") -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {fault and f'{fault}: '}{what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="parley-planted-") as folder:
        tree = ROOT if plant is None else plant.copy_into(Path(folder) / "tree")
        if package_in(tree) != tree / "workers":
            raise WrongTree(package_in(tree))
        say(f"on {'the checkout' if plant is None else f'a copy with {plant.name} planted'}")
        outcomes = []
        with services() as standing:
            say("three brokers and Postgres are up")
            for fault in faults:
                for seed in range(1, 2 if plant is None else TRIES + 1):
                    outcome = play(standing, tree, fault, partial(say, fault=fault), seed)
                    say(f"{outcome.facts}; {_verdict(outcome)}", fault)
                    if outcome.broken:
                        break
                outcomes.append(outcome)
        return outcomes


def _verdict(outcome: Outcome) -> str:
    broken = ", ".join(each.promise for each in outcome.broken)
    return f"BROKEN: {broken}" if broken else "every promise holds"


def main(arguments: Sequence[str]) -> int:
    known = plants()
    parser = argparse.ArgumentParser(prog="python -m tests.replicas")
    parser.add_argument("--fault", choices=FAULTS, help="this one alone; otherwise all, or the plant's own")
    parser.add_argument("--plant", choices=known, help="run a copy of the code with this fault planted")
    chosen = parser.parse_args(arguments)
    plant = known[chosen.plant] if chosen.plant else None
    faults = [chosen.fault] if chosen.fault else [plant.fault] if plant else list(FAULTS)
    try:
        outcomes = run(faults, plant)
    except DoesNotApply as error:
        print(error)
        return NOT_FINISHED
    except Exception:
        traceback.print_exc()
        return NOT_FINISHED
    print(f"\n{table(outcomes)}\n")
    for line in (line for outcome in outcomes for line in breaches(outcome)):
        print(line)
    return BROKEN if any(outcome.broken for outcome in outcomes) else HOLDS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
