"""Turns commands on the delivery topic into addresses on offer; a command is a hint and the row is the truth."""

from __future__ import annotations

import structlog

from schemas.delivery import DeliveryCommand
from schemas.reason import RefusedRecord
from workers.delivery.loops.sender import Sender
from workers.kafka.consumer import Batch
from workers.kafka.record import Record
from workers.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)


class DeliveryConsumer:
    """`handle` is for `RecordConsumer.run`."""

    def __init__(self, sender: Sender, metrics: Metrics) -> None:
        self._sender = sender
        self._metrics = metrics

    async def handle(self, batch: Batch) -> None:
        """Offer the addresses of a batch and acknowledge it, waiting while the sender has enough."""
        self._sender.offer(address for record in batch for address in self._addresses(record))
        batch.ack()
        await self._sender.room()

    def _addresses(self, record: Record) -> tuple[int, ...]:
        try:
            return DeliveryCommand.decode(record.value or b"").address_ids
        except RefusedRecord as error:
            self._metrics.dead_letters.labels(error.reason.value).inc()
            log.warning("delivery.command_refused", position=record.position, reason=error.reason.value)
            return ()
