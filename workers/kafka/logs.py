"""The Kafka clients' logs stay bounded: an outage writes a few lines a minute, and the count of the rest.

One broker away for 15 s is about 2,000 lines of aiokafka otherwise. Lines are told apart by logger, level and
template (never by their arguments); what was held back is said with the next line that passes.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

CLIENT_LOGGERS = ("aiokafka", "faust", "mode", "kafka")


@dataclass(slots=True)
class _Window:
    started: float
    passed: int = 0
    held_back: int = 0


class LogBound(logging.Filter):
    """Lets `per_minute` records of one template through in each minute."""

    def __init__(self, per_minute: int = 5, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._clock = clock
        self._windows: dict[tuple[str, int, str], _Window] = {}
        self.suppressed = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        template = (record.name, record.levelno, str(record.msg)[:200])
        window = self._windows.get(template)
        if window is None or now - window.started >= 60:
            if len(self._windows) > 1000:
                self._windows.clear()
            held_back = window.held_back if window else 0
            window = self._windows[template] = _Window(now)
            if held_back:
                record.msg = f"{record.msg} [{held_back} like this held back]"
        if window.passed < self._per_minute:
            window.passed += 1
            return True
        window.held_back += 1
        self.suppressed += 1
        return False


class _BoundLogger(logging.Handler):
    """Sits on a client's logger in place of propagation: bounds, then hands on to the root's handlers."""

    def __init__(self, bound: LogBound) -> None:
        super().__init__()
        self.addFilter(bound)

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger().handle(record)


def bound_client_logs(per_minute: int = 5) -> LogBound:
    """Bound the loggers of aiokafka, faust and mode in this process; calling again replaces the bound."""
    bound = LogBound(per_minute)
    for name in CLIENT_LOGGERS:
        logger = logging.getLogger(name)
        logger.propagate = False
        for handler in [h for h in logger.handlers if isinstance(h, _BoundLogger)]:
            logger.removeHandler(handler)
        logger.addHandler(_BoundLogger(bound))
        logger.setLevel(logging.WARNING)
    return bound
