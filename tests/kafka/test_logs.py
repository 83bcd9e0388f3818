"""A broker outage writes a few lines a minute."""

import logging
from collections.abc import Iterator

import pytest

from workers.kafka.logs import CLIENT_LOGGERS, LogBound, bound_client_logs


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    kept = [
        (logging.getLogger(n), logging.getLogger(n).propagate, logging.getLogger(n).level)
        for n in CLIENT_LOGGERS
    ]
    yield
    for logger, propagate, level in kept:
        logger.propagate, logger.level = propagate, level
        logger.handlers.clear()


def record(message: str, name: str = "aiokafka") -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "f.py", 1, message, (), None)


def test_lines_of_one_template_are_bounded_by_the_minute_and_the_rest_is_counted() -> None:
    now = [0.0]
    bound = LogBound(per_minute=3, clock=lambda: now[0])
    assert [bound.filter(record("unable to connect")) for _ in range(10)] == [True] * 3 + [False] * 7
    assert bound.filter(record("something else"))
    assert bound.suppressed == 7
    now[0] = 61.0
    following = record("unable to connect")
    assert bound.filter(following)
    assert following.getMessage() == "unable to connect [7 like this held back]"


@pytest.mark.rule("EN-39")
def test_the_clients_loggers_are_bounded_once_however_often_it_is_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bound_client_logs()
    bound = bound_client_logs(per_minute=4)
    for number in range(2000):
        logging.getLogger("aiokafka.conn").error("Unable connect to node with id %s", number)
    assert len(caplog.records) == 4
    assert bound.suppressed == 1996
