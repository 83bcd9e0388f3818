"""`traceparent` goes through Kafka and into turns; with OpenTelemetry installed it also becomes spans.

Without the `otel` extra the header is passed on untouched and spans cost nothing.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

try:
    from opentelemetry import trace as _otel
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    _has_otel: bool = True
except ImportError:  # the `otel` extra is not installed
    _has_otel = False

HEADER = "traceparent"
_SHAPE = re.compile(r"^[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$")
_passed_on: ContextVar[str | None] = ContextVar("traceparent", default=None)


def valid_traceparent(value: bytes | str | None) -> str | None:
    """The value when it has the shape of a W3C traceparent, else None; never raises."""
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    return value if value and _SHAPE.match(value) else None


def current_traceparent() -> str | None:
    """What to write into an outgoing header: the current span's, or the one that came in."""
    if _has_otel and _otel.get_current_span().get_span_context().is_valid:
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return carrier.get(HEADER)
    return _passed_on.get()


@contextmanager
def carry_on(name: str, traceparent: bytes | str | None, **ids: str) -> Iterator[None]:
    """Do the work inside as a span `name` (ids as attributes) under the incoming `traceparent`, if any."""
    incoming = valid_traceparent(traceparent)
    held = _passed_on.set(incoming)
    try:
        if not _has_otel:
            yield
            return
        parent = TraceContextTextMapPropagator().extract({HEADER: incoming}) if incoming else None
        with _otel.get_tracer("parley").start_as_current_span(name, context=parent, attributes=dict(ids)):
            yield
    finally:
        _passed_on.reset(held)
