"""Promises about events and turns. Each function yields one sentence for every breach that the records prove.

A commit lies between `before_ns` and `after_ns` of its line, so that only what is certain is called a breach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.checker.evidence import SILENT, Evidence, Line, Run, answer_to

SEEN_AT_LEAST = 4
"""Prior inputs that a turn must recall at the least, where there are so many; the bounds of memory allow for more."""


def no_lost_event(evidence: Evidence) -> Iterator[str]:
    """Every published event has a run for each of its agents that succeeded, and its reply arrived.

    On a channel that nobody can ask, a reply may end `unknown` instead.
    """
    for event in evidence.published:
        for agent in event.agents:
            runs = evidence.runs_of.get((agent, event.event_id), [])
            if not runs:
                yield f"{event.event_id} has no run of {agent}"
            for run in runs:
                if run.status != "succeeded":
                    yield f"{event.event_id}: its run of {agent} is {run.status} ({run.reason})"
                elif answer_to(agent, event.event_id) not in evidence.accepted_of:
                    states = [each.state for each in evidence.deliveries_of.get(run.run_id, [])]
                    if event.capability != SILENT or states != ["unknown"]:
                        yield f"{event.event_id}: the reply of {agent} never arrived, its deliveries: {states}"


def completed_once(evidence: Evidence) -> Iterator[str]:
    """One reservation and one run for an agent and event, and no run comes to its end twice."""
    reserved = Counter((each.agent, each.event_id) for each in evidence.reservations)
    yield from (
        f"{event_id} is reserved {n} times for {agent}" for (agent, event_id), n in reserved.items() if n > 1
    )
    for (agent, event_id), runs in evidence.runs_of.items():
        if len(runs) > 1:
            yield f"{event_id} has {len(runs)} runs of {agent}"
    status = {run.run_id: run.status for run in evidence.runs}
    for each in evidence.reservations:
        if status.get(each.run_id) != each.outcome and each.outcome is not None:
            yield f"{each.event_id}: reserved as {each.outcome}, and its run is {status.get(each.run_id)}"
    for run_id, lines in evidence.lines_of.items():
        ends = [line for line in lines if line.word == "end" and line.fresh]
        if len(ends) > 1:
            yield f"run {run_id} came to its end in turns {_turns(ends)}"


def admitted_in_order(evidence: Evidence) -> Iterator[str]:
    """The runs of a chat are admitted in the order in which its events were published."""
    for runs in evidence.lanes.values():
        known = [evidence.event[run.event_id] for run in runs if run.event_id in evidence.event]
        for earlier, later in pairwise(known):
            if later.sequence < earlier.sequence:
                yield f"{earlier.event_id} was admitted before {later.event_id}"


def serial_turns(evidence: Evidence) -> Iterator[str]:
    """Turns of a conversation follow each other in admission order: no earlier run writes once a later one has."""
    for runs in evidence.lanes.values():
        last: Line | None = None
        for run in runs:
            fresh = [line for line in evidence.lines_of.get(run.run_id, []) if line.fresh]
            for line in fresh:
                if last is not None and line.after_ns < last.before_ns:
                    yield f"turn {line.turn} of {run.event_id} wrote before turn {last.turn} of an earlier run did"
                    break
            last = max([*fresh, *([last] if last else [])], key=lambda line: line.before_ns, default=None)


def one_writer(evidence: Evidence) -> Iterator[str]:
    """Once a turn was taken over, it writes nothing: no step twice, none of an old epoch behind one of a new."""
    for run_id, lines in evidence.lines_of.items():
        fresh = [line for line in lines if line.fresh]
        for word, n in Counter(line.word for line in fresh).items():
            if n > 1:
                writers = _turns([line for line in fresh if line.word == word])
                yield f"run {run_id}: step {word} was committed {n} times, by turns {writers}"
        yield from _written_after_takeover(run_id, fresh)
    epochs: dict[str, int] = {}
    for step in sorted(evidence.steps, key=lambda step: (step.run_id, step.step)):
        if step.epoch < epochs.get(step.run_id, 0):
            yield f"run {step.run_id}: step {step.step} is of epoch {step.epoch}, behind {epochs[step.run_id]}"
        epochs[step.run_id] = step.epoch


def _written_after_takeover(run_id: str, fresh: Sequence[Line]) -> Iterator[str]:
    """A wrote, then B wrote, so B took over from A; then A wrote again."""
    for late in fresh:
        for between in fresh:
            if (
                between.turn != late.turn
                and between.after_ns < late.before_ns
                and any(line.turn == late.turn and line.after_ns < between.before_ns for line in fresh)
            ):
                yield f"run {run_id}: turn {late.turn} wrote {late.word} after turn {between.turn} took over"


def same_snapshot(evidence: Evidence) -> Iterator[str]:
    """Every turn of a run is shown the same past."""
    for run_id, lines in evidence.lines_of.items():
        if len({line.recalled for line in lines if line.word == "begin"}) > 1:
            yield f"run {run_id} was shown different pasts"


def whole_history(evidence: Evidence) -> Iterator[str]:
    """A turn recalls the inputs before it, all and in order, back to where the bounds of memory end."""
    for runs in evidence.lanes.values():
        before: list[str] = []
        for run in runs:
            if run.bound and (begun := _begun(evidence, run)) is not None:
                inputs = [text.split()[0] for role, text in begun.recalled if role == "user"]
                expected = before[len(before) - len(inputs) :] if inputs else []
                if inputs != expected or len(inputs) < min(SEEN_AT_LEAST, len(before)):
                    missing = [each for each in before[-SEEN_AT_LEAST:] if each not in inputs]
                    yield f"{run.event_id} recalled the inputs {inputs[-SEEN_AT_LEAST:]}, missing {missing}"
            before.append(run.event_id)


def nothing_left_owned(evidence: Evidence) -> Iterator[str]:
    """When all is quiet, no lane, turn or delivery is owned or under way without a living owner."""
    for held in evidence.held:
        if not held.owner_lives:
            yield f"{held.what}, without a living owner"


def _begun(evidence: Evidence, run: Run) -> Line | None:
    return next((line for line in evidence.lines_of.get(run.run_id, []) if line.word == "begin"), None)


def _turns(lines: Sequence[Line]) -> str:
    return " and ".join(line.turn for line in lines)
