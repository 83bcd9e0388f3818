import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from workers.telemetry import configure


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged, from debug on, as JSON lines."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure("DEBUG", stream=stream)
    yield stream
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()
