"""A scenario from its first event to what the checker says of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.checker.evidence import Evidence
from tests.checker.promises import Broken, check
from tests.replicas.faults import FAULTS
from tests.replicas.services import Services
from tests.replicas.stage import a_stage, keep

BEFORE_SECONDS: Final = 5.0
AFTER_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scenario; `did` says what was done to it, `facts` how much there was."""

    fault: str
    did: str
    facts: str
    seconds: float
    broken: Sequence[Broken]


def play(services: Services, tree: Path, fault: str, say: Callable[[str], None], seed: int = 1) -> Outcome:
    """Workers of `tree` under load, one fault, and the checker's word when all has settled."""
    started = time.monotonic()
    with a_stage(services, tree, fault, say, seed) as stage:
        say(f"{len(stage.fleet.workers)} workers are ready")
        stage.publisher.start()
        time.sleep(BEFORE_SECONDS)
        stage.publisher.repeats = False
        did = FAULTS[fault](stage)
        say(did)
        time.sleep(AFTER_SECONDS)
        published = stage.publisher.stop()
        say(f"{published} events were published")
        stage.settle()
        stage.fleet.check()
        evidence = stage.evidence()
    broken = check(evidence)
    if broken:
        say(f"records and logs are kept in {keep(stage.folder)}")
    return Outcome(fault, did, _facts(evidence), time.monotonic() - started, broken)


def _facts(evidence: Evidence) -> str:
    keys = Counter(each.key for each in evidence.accepted)
    again = sum(keys.values()) - len(keys)
    states = Counter(each.state for each in evidence.deliveries)
    resumed = sum(not line.fresh and line.word == "begin" for line in evidence.lines)
    return (
        f"{len(evidence.published)} events, {len(evidence.runs)} runs, {resumed} resumed, "
        f"{len(evidence.accepted)} requests accepted ({again} of a known key), {states['unknown']} unknown"
    )
