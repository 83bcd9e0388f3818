"""Gauges that are read from the database: the same on every replica, to be aggregated by max."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import timedelta

import structlog

from workers.kafka.lasting import LastingConsumer
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.postgres.sql import load
from workers.telemetry.metrics import Metrics

READ_QUEUE = load(__package__, "read_queue")
READ_DELIVERY_STATES = load(__package__, "read_delivery_states")
COUNT_PAUSES = load(__package__, "count_pauses")
READ_SWEEP = load(__package__, "read_sweep")
STATES = ("pending", "sending", "uncertain", "unknown")
PAUSE_KINDS = ("agent", "channel", "account")
MOST_ROWS = 100_000
"""What one reading looks at; a longer queue than that reads as that long."""
REST = 20
"""A reading is followed by a rest of so many times its own duration at least."""

log = structlog.get_logger(__name__)


class Sampler:
    """Reads the gauges every `every`."""

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        consumers: Mapping[str, LastingConsumer],
        every: timedelta = timedelta(seconds=5),
    ) -> None:
        self._database = database
        self._metrics = metrics
        self._consumers = consumers
        self._every = every

    async def run_once(self) -> None:
        """Read every gauge once; raises database errors."""
        metrics = self._metrics
        queue = await self._database.fetchrow(READ_QUEUE, MOST_ROWS)
        if queue is not None:
            metrics.queue_depth.set(queue["depth"])
            metrics.queue_oldest_seconds.set(queue["oldest_seconds"])
            metrics.unclaimable_runs.set(queue["unclaimable"])
        rows = {row["state"]: row for row in await self._database.fetch(READ_DELIVERY_STATES, MOST_ROWS)}
        for state in STATES:
            metrics.delivery_states.labels(state).set(rows[state]["deliveries"] if state in rows else 0)
        metrics.oldest_pending_seconds.set(rows["pending"]["oldest_seconds"] if "pending" in rows else 0)
        paused = {row["kind"]: row["paused"] for row in await self._database.fetch(COUNT_PAUSES)}
        for kind in PAUSE_KINDS:
            metrics.paused.labels(kind).set(paused.get(kind, 0))
        if (sweep := await self._database.fetchrow(READ_SWEEP)) is not None:
            metrics.sweep_age_seconds.set(sweep["seconds"])
        metrics.pool_size.labels("engine").set(self._database.size)
        metrics.pool_in_use.labels("engine").set(self._database.in_use)
        for consumer in self._consumers.values():
            metrics.consumer_lag.labels(consumer.topic).set(sum(consumer.lag().values()))

    async def run(self) -> None:
        """Sample until cancelled; an outage leaves the last values standing."""
        while True:
            started = time.monotonic()
            try:
                await self.run_once()
            except Exception as error:
                if not is_retryable(error):
                    raise
                log.debug("sampling.waiting", error=type(error).__name__)
            took = time.monotonic() - started
            await asyncio.sleep(max(self._every.total_seconds(), REST * took))
