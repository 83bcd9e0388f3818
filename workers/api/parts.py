"""What the worker hands to its HTTP side."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from schemas.envelope import SealedEvent
from workers.api.operators import OperatorTokens
from workers.channels.port import Channel
from workers.memory.limits import Limits
from workers.operations.retention import Retention
from workers.postgres.database import Database
from workers.postgres.hints import Hints
from workers.telemetry.health import Health
from workers.telemetry.metrics import Metrics

Publish = Callable[[SealedEvent], Awaitable[None]]
"""Returns once the broker has acknowledged the record on the events topic; raises a ParleyError otherwise."""


DEFAULT_RETENTION: Final = Retention()


@dataclass(frozen=True, slots=True)
class ApiParts:
    """With no channels the process serves health and metrics only."""

    app_name: str
    channels: Mapping[str, Channel]
    publish: Publish
    database: Database | None
    hints: Hints | None
    health: Health
    metrics: Metrics
    operators: OperatorTokens | None = None
    """Without it the operators' routes are not there."""
    retention: Retention = DEFAULT_RETENTION
    limits: Limits | None = None
    publish_within: timedelta = timedelta(seconds=10)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
