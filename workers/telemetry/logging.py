"""Every log line of the process, ours and third parties', leaves through one renderer, redacted.

JSON for machines, plain lines for a terminal. Lines carry ids and states; message texts, tokens and
signatures are masked by `redact`, whoever logs them. Our own lines go straight to the stream: three of them
stand for every turn, so a line must cost microseconds.
"""

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO

import orjson
import structlog

from workers.telemetry.redact import redact
from workers.telemetry.repeats import Repeats

_MESSAGE_KEYS = frozenset({"event", "exception", "stack"})
_OFTEN_SAID = frozenset({"debug", "info"})


def configure(
    level: str = "INFO", json: bool = True, stream: TextIO | None = None, *, final: bool = False
) -> None:
    """Send all logs of this process to `stream` (stderr when None).

    Calling again replaces what was set, unless it was `final`: then each logger is set up once, and a line that
    the level leaves out costs next to nothing.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer(serializer=_dump)
        if json
        else structlog.dev.ConsoleRenderer(colors=False)
    )
    target, once_in_a_while = stream or sys.stderr, partial(_leave_out_repeats, Repeats())
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, once_in_a_while, _json_line]
        if json
        else [
            structlog.contextvars.merge_contextvars,
            once_in_a_while,
            _add_logger_name,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            redact_processor,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        logger_factory=lambda *names: _Lines(names[0] if names else "", target),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        cache_logger_on_first_use=final,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            redact_processor,
            renderer,
        ],
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in list(root.handlers):
        if type(old) is logging.StreamHandler:
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)


class _Lines:
    """Writes rendered lines to a stream; the logger that structlog wraps."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        self._stream = stream

    def msg(self, line: str) -> None:
        # A full disk or a reader that has left costs the line, and never the work that it tells of.
        with contextlib.suppress(OSError):
            self._stream.write(line + "\n")

    debug = info = warning = error = critical = exception = msg


def _leave_out_repeats(
    repeats: Repeats, logger: Any, method: str, line: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    if method in _OFTEN_SAID or line.get("exc_info"):
        return line
    left_out = repeats.left_out((logger.name, *map(repr, line.items())))
    if left_out is None:
        raise structlog.DropEvent
    if left_out:
        line["repeated"] = left_out
    return line


def _add_logger_name(logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line["logger"] = logger.name
    return line


def _json_line(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
    """The whole chain of a JSON line in one step, since three lines stand for every turn."""
    if line.get("exc_info"):
        line = structlog.processors.format_exc_info(logger, method, line)
    shown = redact_processor(logger, method, line)
    shown["logger"] = logger.name
    shown["level"] = "error" if method == "exception" else method
    shown["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return _dump(shown)


def redact_processor(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: masks secrets by field name and inside every text."""
    return {key: redact("" if key in _MESSAGE_KEYS else key, value) for key, value in line.items()}


def _dump(line: Any, **_: Any) -> str:
    return orjson.dumps(line, default=str).decode()
