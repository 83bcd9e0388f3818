"""What a run does when it comes to a position of its journal: run, replay, resume as interrupted, or stop.

No record: run. Finished: replay its result. Started (only calls that may not repeat are recorded so): the outcome is
unknown. A record of other code (agent version, kind, name, argument digest) stops the run, unless the agent's
`on_change` is `continue`: then a record of the same kind and name still counts, and any other is run over.
"""

from dataclasses import dataclass
from typing import Literal

from workers.agents.journal import StepKind, StepRecord

OnChange = Literal["fail", "continue"]
Difference = Literal["agent_version", "kind", "name", "arguments"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What the agent is about to do at a position."""

    kind: StepKind
    name: str
    args_digest: bytes
    agent_version: str


@dataclass(frozen=True, slots=True)
class Run:
    """Nothing usable is recorded: do it."""


@dataclass(frozen=True, slots=True)
class Replay:
    """It was finished: give back `result`, do nothing."""

    result: bytes | None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """It was started, may not be repeated, and nobody knows how it ended."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """The journal holds something else here, and the agent wants to stop then."""

    what: Difference


def meet(
    record: StepRecord | None, expected: Expected, on_change: OnChange, *, repeatable: bool
) -> Run | Replay | Interrupted | Diverged:
    """What to do about `record` when `expected` comes to its position."""
    if record is None:
        return Run()
    difference = difference_of(record, expected)
    if difference and on_change == "fail":
        return Diverged(difference)
    if difference and (record.kind, record.name) != (expected.kind, expected.name):
        return Run()
    if record.state == "finished":
        return Replay(record.result)
    return Run() if repeatable else Interrupted()


def difference_of(record: StepRecord, expected: Expected) -> Difference | None:
    """The first difference between what is recorded and what is about to happen, or None."""
    if record.agent_version != expected.agent_version:
        return "agent_version"
    if record.kind != expected.kind:
        return "kind"
    if record.name != expected.name:
        return "name"
    if record.args_digest != expected.args_digest:
        return "arguments"
    return None
