"""What the demo promises, each promise decided from the evidence alone."""

from __future__ import annotations

from dataclasses import dataclass

from workers.embedded.demo.evidence import Evidence, Step


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, whether it held, and the numbers that say so."""

    promise: str
    holds: bool
    found: str


def judge(evidence: Evidence) -> list[Check]:
    """Every promise of the demo."""
    return [
        _admitted_once(evidence),
        *_recovered(evidence),
        *_delivered_once(evidence),
        *_recalled(evidence),
        _left(evidence),
    ]


def _admitted_once(evidence: Evidence) -> Check:
    first = evidence.said[0]
    accepted = all(status == 202 for said in evidence.said for status in said.statuses)
    runs = [run.event_id for run in evidence.runs if run.event_id.startswith(first.event_id)]
    return Check(
        "one event posted three times is one run",
        accepted and len(runs) == 1 and len(evidence.runs) == len(evidence.said),
        f"{len(first.statuses)} posts of {first.event_id}: {len(runs)} run{'s' * (len(runs) != 1)}",
    )


def _recovered(evidence: Evidence) -> list[Check]:
    run = evidence.runs[0]
    steps = evidence.steps[run.id]
    before = [step for step in steps if step.epoch == steps[0].epoch]
    after = [step for step in steps if step.epoch > steps[0].epoch]
    answers = sum(_is_answer(step) for each in evidence.steps.values() for step in each)
    return [
        Check(
            "a worker killed in the middle of a turn loses no turn",
            run.status == "succeeded" and run.crashes == 1 and bool(before) and bool(after),
            f"run {run.status}, {run.crashes} crash, {len(before)} steps before the kill and {len(after)} after",
        ),
        Check(
            "what was journalled before the kill is not done again",
            run.ended and evidence.asked == answers,
            f"{answers} model answers journalled, the model was asked {evidence.asked} times",
        ),
    ]


def _delivered_once(evidence: Evidence) -> list[Check]:
    dropped = next((attempt for attempt in evidence.attempts if attempt.dropped), None)
    same = [attempt for attempt in evidence.attempts if dropped is not None and attempt.key == dropped.key]
    sent = [each for each in evidence.deliveries if each.state == "sent"]
    return [
        Check(
            "a reply whose connection dropped goes again under the same key",
            len(same) == 2 and any(d.key == same[0].key and d.state == "sent" for d in sent),
            f"{len(same)} attempts under one key, " + _states(evidence),
        ),
        Check(
            "every message gets one answer, and one only",
            len(evidence.messages) == len(evidence.said) == len(sent) == len(evidence.deliveries),
            f"{len(evidence.said)} messages, {len(evidence.messages)} answers in {len(evidence.attempts)} requests",
        ),
    ]


def _recalled(evidence: Evidence) -> list[Check]:
    answers = [message.text for message in evidence.messages]
    known = next((answer for answer in answers if "You told me" in answer and "Lisbon" in answer), None)
    return [
        Check(
            "the second message is answered from the note of the first",
            known is not None,
            known or "no answer knows it",
        ),
        Check(
            "the third message is answered with the two before it in view",
            any("I can see: 2" in answer for answer in answers),
            answers[-1] if answers else "no answers",
        ),
    ]


def _left(evidence: Evidence) -> Check:
    return Check(
        "the worker drains and leaves when it is told to",
        evidence.exit_code == 0,
        f"exit code {evidence.exit_code}",
    )


def _is_answer(step: Step) -> bool:
    return step.kind == "model"


def _states(evidence: Evidence) -> str:
    return "deliveries " + (", ".join(each.state for each in evidence.deliveries) or "none")
