"""The only owner of metric names, of the shape of a log line and of trace headers."""

from workers.telemetry.logging import configure
from workers.telemetry.metrics import Metrics
from workers.telemetry.redact import redact_text
from workers.telemetry.tracing import carry_on, current_traceparent

__all__ = ["Metrics", "carry_on", "configure", "current_traceparent", "redact_text"]
