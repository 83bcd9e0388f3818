"""What the receiver's log proves."""

from collections.abc import Sequence

import pytest

from benchmarks.control import Arrival, parse
from benchmarks.profiling import table
from benchmarks.report import Faults, faults, latency_ms, speed

SECOND = 1_000_000_000


def arrivals(*numbers: tuple[int, int], phase: str = "b", every: int = SECOND) -> list[Arrival]:
    """One arrival for each (conversation, sequence), `every` ns apart, each under an id of its own."""
    return [
        Arrival(index * every, f"{conversation}-{sequence}", phase, conversation, sequence, 0)
        for index, (conversation, sequence) in enumerate(numbers)
    ]


def test_a_log_with_each_reply_once_and_in_order_has_no_fault() -> None:
    log = arrivals((1, 0), (2, 0), (1, 1), (2, 1))

    assert faults(log, {1: 2, 2: 2}) == Faults(0, 0, 0)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (arrivals((1, 0), (1, 1), (1, 1)), Faults(1, 0, 0)),
        (arrivals((1, 0)), Faults(0, 1, 0)),
        (arrivals((1, 1), (1, 0)), Faults(0, 0, 1)),
    ],
    ids=["twice", "missing", "swapped"],
)
def test_each_fault_is_counted(log: Sequence[Arrival], expected: Faults) -> None:
    assert faults(log, {1: 2}) == expected


def test_the_same_reply_under_another_id_is_a_duplicate() -> None:
    log = [*arrivals((1, 0)), Arrival(5, "other", "b", 1, 0, 0)]

    assert faults(log, {1: 1}) == Faults(1, 0, 0)


def test_speed_counts_first_arrivals_of_the_backlog_only() -> None:
    log = [*arrivals((1, 0), (1, 1), (1, 2), (1, 2)), Arrival(9 * SECOND, "late", "l", 1, 3, 0)]

    found = speed(log, started=-SECOND)

    assert (found.turns_per_s, found.turns_per_s_from_start) == (1.0, 1.0)


def test_latency_is_that_of_the_paced_phase() -> None:
    paced = arrivals(*((1, number) for number in range(100)), phase="l", every=1_000_000)

    assert latency_ms([*arrivals((2, 0)), *paced], 50, 95, 99) == [49.0, 94.0, 98.0]


def test_an_arrival_is_read_from_the_text_that_came_back() -> None:
    noted: dict[str, str | int] = {"at": 7, "id": "k", "body": '{"text": "l 12 3 99"}'}

    assert parse(noted) == Arrival(7, "k", "l", 12, 3, 99)


def test_a_profile_names_who_spends_and_who_makes_spend() -> None:
    told = table(["main;loop;send 3\n", "main;loop 1\n"])

    assert "self\n 75.0%  send\n 25.0%  loop" in told
    assert "100.0%  main" in told
