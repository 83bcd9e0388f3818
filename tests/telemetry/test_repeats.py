"""One sentence said a thousand times is a few lines, and nothing that differs is lost."""

import io
import json
import logging

import pytest
import structlog

from workers.telemetry.repeats import EVERY_SECONDS, MAX_KINDS, Repeats


def events(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_repeated_line_is_written_first_and_then_now_and_again_with_its_count() -> None:
    clock = Clock()
    repeats = Repeats(clock)
    assert repeats.left_out("away") == 0
    assert [repeats.left_out("away") for _ in range(7)] == [None] * 7
    assert repeats.left_out("another") == 0
    clock.now += EVERY_SECONDS
    assert repeats.left_out("away") == 7
    clock.now += EVERY_SECONDS
    assert repeats.left_out("away") == 0


def test_what_is_remembered_of_lines_is_bounded() -> None:
    repeats = Repeats(Clock())
    assert all(repeats.left_out(number) == 0 for number in range(10 * MAX_KINDS))
    assert len(repeats._kinds) == MAX_KINDS


@pytest.mark.rule("EN-39")
def test_an_outage_fills_no_disk_with_one_sentence(written: io.StringIO) -> None:
    ours = structlog.get_logger("workers.turns.loop")
    for _ in range(1000):
        ours.warning("turns.waiting", error="ConnectionRefusedError")
    ours.warning("turns.waiting", error="TimeoutError")
    ours.error("turns.waiting", error="TimeoutError", sqlstate="57P01")
    assert events(written) == ["turns.waiting"] * 3


def test_lines_of_daily_work_and_tracebacks_are_all_written(written: io.StringIO) -> None:
    ours = structlog.get_logger("workers.delivery")
    for _ in range(3):
        ours.info("run.admitted")
        try:
            raise ValueError("wrong")
        except ValueError:
            ours.exception("part.failed")
            logging.getLogger("third.party").exception("failed")
    assert events(written) == ["run.admitted", "part.failed", "failed"] * 3
