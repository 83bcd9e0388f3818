"""Between faust and the reader: bounded in records and in bytes, and never emptied without a word."""

from collections.abc import Callable
from typing import cast

from faust.types import Message
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from workers.kafka.record import Headers, payload_bytes


class ByteBoundedQueue(ThrowableQueue):  # type: ignore[type-arg]
    """Full at `maxsize` records or `max_bytes` of payload; one record larger than that still passes."""

    def __init__(
        self, maxsize: int, max_bytes: int, flow_control: FlowControlEvent, on_cleared: Callable[[], None]
    ) -> None:
        """`on_cleared` hears that records (those that wait to be put, too) were thrown away."""
        self.bytes = 0
        self._max_bytes = max_bytes
        self._on_cleared = on_cleared
        super().__init__(maxsize, flow_control=flow_control, clear_on_resume=True)

    def full(self) -> bool:
        return self.bytes >= self._max_bytes or super().full()

    def _put(self, item: Message) -> None:
        self.bytes += _weight(item)
        super()._put(item)

    def _get(self) -> Message:
        item: Message = super()._get()
        self.bytes -= _weight(item)
        return item

    def clear(self) -> None:
        self.bytes = 0
        super().clear()
        self._on_cleared()


def _weight(message: Message) -> int:
    return payload_bytes(message.key, message.value, headers_of(message))


def headers_of(message: Message) -> Headers:
    """The pairs that aiokafka gives; faust's types allow a mapping as well, which it never makes."""
    return list(cast(Headers, message.headers or ()))
