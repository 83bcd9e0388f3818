"""Each record goes straight from faust's fetch into our one queue; faust's own way makes an event of it per channel.

What faust promises here is kept: nothing passes while partitions are being assigned, a queue under pressure stops the
fetch of that partition, and a full one holds the reading up.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from faust.transport.conductor import Conductor
from faust.types import TP, Message

from workers.kafka.bounded_queue import ByteBoundedQueue

Handler = Callable[[Message], Awaitable[None]]


class StraightConductor(Conductor):
    """Passes whole messages to the queue of the topic's only channel."""

    def _compile_message_handler(self) -> Handler:
        handlers, changing = self._tp_to_callback, self._tp_to_callback_lock

        async def on_message(message: Message) -> None:
            if changing.locked():
                async with changing:
                    pass
            await handlers[message.tp](message)

        return on_message

    def _build_handler(self, tp: TP, channels: Any) -> Handler:
        [channel] = channels
        queue = cast(ByteBoundedQueue, channel.queue)
        flow, consumer = self.app.flow_control, self.app.consumer

        def on_pressure_high() -> None:
            consumer.on_buffer_full(tp)

        def on_pressure_drop() -> None:
            consumer.on_buffer_drop(tp)

        async def on_message(message: Message) -> None:
            if not flow.is_active():
                await flow.acquire()
            if queue.full():
                await queue.put(message)
            else:
                queue.put_nowait_enhanced(
                    message, on_pressure_high=on_pressure_high, on_pressure_drop=on_pressure_drop
                )

        return on_message
