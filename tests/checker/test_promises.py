"""The checker finds nothing in good records, and each breach by the name of its promise."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from tests.checker.evidence import (
    ASKABLE,
    IDEMPOTENT,
    SILENT,
    Accepted,
    Delivery,
    Evidence,
    Held,
    Line,
    Published,
    Reservation,
    Run,
    Step,
    answer_to,
)
from tests.checker.promises import PROMISES, check

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
AGENT: Final = "echo"


def event(number: int, capability: str = ASKABLE) -> Published:
    return Published(f"e{number}", "chat", number, "lab", capability, (AGENT,))


def run(number: int, **changes: Any) -> Run:
    made = Run(
        run_id=f"r{number}",
        lane=1,
        bound=True,
        position=number,
        agent=AGENT,
        event_id=f"e{number}",
        status="succeeded",
        reason=None,
        started_at=START + timedelta(seconds=number),
    )
    return replace(made, **changes)


def delivery(number: int, **changes: Any) -> Delivery:
    made = Delivery(
        f"r{number}:0:0", f"r{number}", True, "sent", START + timedelta(seconds=number, milliseconds=1)
    )
    return replace(made, **changes)


def accepted(number: int, **changes: Any) -> Accepted:
    return replace(Accepted(number * 100 + 50, f"r{number}:0:0", answer_to(AGENT, f"e{number}")), **changes)


def line(number: int, word: str, at: int, **changes: Any) -> Line:
    return replace(Line(f"t{number}", f"r{number}", word, True, at, at + 1), **changes)


def past(numbers: range) -> tuple[tuple[str, str], ...]:
    """What a turn recalls of the turns `numbers`: each input and its sent reply."""
    return tuple(
        record
        for number in numbers
        for record in (("user", f"e{number} says hello"), ("assistant", answer_to(AGENT, f"e{number}")))
    )


def good() -> Evidence:
    """Three turns of one conversation, as they should be."""
    numbers = range(3)
    return Evidence(
        published=[event(n) for n in numbers],
        reservations=[Reservation(AGENT, f"e{n}", f"r{n}", "succeeded") for n in numbers],
        runs=[run(n) for n in numbers],
        deliveries=[delivery(n) for n in numbers],
        steps=[Step(f"r{n}", 0, n + 1) for n in numbers],
        held=[],
        accepted=[accepted(n) for n in numbers],
        lines=[
            each
            for n in numbers
            for each in (
                line(n, "begin", n * 100, recalled=past(range(n))),
                line(n, "end", n * 100 + 10),
            )
        ],
    )


def broken_by(**changes: Any) -> set[str]:
    return {each.promise for each in check(replace(good(), **changes))}


def test_records_of_kept_promises_prove_nothing_broken() -> None:
    assert check(good()) == []


def others(what: str, number: int) -> list[Any]:
    """All records of `what` but the one of that number."""
    return [each for place, each in enumerate(getattr(good(), what)) if place != number]


def lines_of_others(number: int) -> list[Line]:
    return [each for each in good().lines if each.run_id != f"r{number}"]


BREACHES: Final[Mapping[str, dict[str, Any]]] = {
    "no-lost-event": {"published": [*good().published, event(9)]},
    "completed-once": {"lines": [*good().lines, line(2, "end", 250, turn="t9")]},
    "admitted-in-order": {
        "published": [event(0), replace(event(1), sequence=5), replace(event(2), sequence=4)],
    },
    "serial-turns": {"lines": [*lines_of_others(0), line(0, "begin", 0), line(0, "end", 900)][::-1]},
    "one-writer": {"steps": [Step("r0", 0, 2), Step("r0", 1, 1)]},
    "same-snapshot": {"lines": [*good().lines, line(2, "begin", 205, turn="t9", fresh=False, recalled=())]},
    "whole-history": {
        "lines": [
            *lines_of_others(2),
            line(2, "begin", 200, recalled=past(range(1, 1))),
            line(2, "end", 210),
        ],
    },
    "nothing-left-owned": {"held": [Held("lane 1 is owned by r2", owner_lives=False)]},
    "one-key-a-reply": {"accepted": [*good().accepted, accepted(1, at_ns=160)]},
    "replies-in-order": {"accepted": [accepted(0, at_ns=199), accepted(1, at_ns=150), accepted(2)]},
    "sent-means-received": {
        "accepted": others("accepted", 2),
        "published": [event(n, SILENT) for n in range(3)],
    },
    "reply-before-next-turn": {
        "lines": [
            *lines_of_others(2),
            line(2, "begin", 200, recalled=(*past(range(1)), ("user", "e1 says hello"))),
            line(2, "end", 210),
        ]
    },
    "only-sent-is-recalled": {"accepted": [accepted(0), accepted(1, at_ns=290), accepted(2)]},
}


def test_there_is_a_breach_for_each_promise() -> None:
    assert BREACHES.keys() == PROMISES.keys()


@pytest.mark.parametrize("promise", BREACHES)
def test_a_breach_is_found_under_the_name_of_its_promise(promise: str) -> None:
    assert promise in broken_by(**BREACHES[promise])


def test_an_owner_that_lives_and_a_repeat_at_a_peer_that_knows_keys_are_no_breach() -> None:
    assert broken_by(held=[Held("delivery r2:0:0 is sending", owner_lives=True)]) == set()
    assert (
        broken_by(
            published=[event(n, IDEMPOTENT) for n in range(3)],
            accepted=[*good().accepted, accepted(1, at_ns=160)],
        )
        == set()
    )
