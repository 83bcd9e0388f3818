"""Every log line of the process, ours and third parties', leaves through one renderer, redacted.

JSON for machines, plain lines for a terminal. Lines carry ids and states; message texts, tokens and
signatures are masked by `redact`, whoever logs them.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import orjson
import structlog

from workers.telemetry.redact import redact

_MESSAGE_KEYS = frozenset({"event", "exception", "stack"})


def configure(level: str = "INFO", json: bool = True, stream: TextIO | None = None) -> None:
    """Send all logs of this process to `stream` (stderr when None); calling again replaces what was set."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    renderer: Any = (
        structlog.processors.JSONRenderer(serializer=_dump)
        if json
        else structlog.dev.ConsoleRenderer(colors=False)
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
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in list(root.handlers):
        if type(old) is logging.StreamHandler:
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)


def redact_processor(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: masks secrets by field name and inside every text."""
    return {key: redact("" if key in _MESSAGE_KEYS else key, value) for key, value in line.items()}


def _dump(line: Any, **_: Any) -> str:
    return orjson.dumps(line, default=str).decode()
