"""The thread that faust gives aiokafka's client, so that a broker that never answers costs a while and nothing more.

A silent heartbeat is given up, a partition that cannot be read is left alone for a while, and the end of the process
waits for nobody.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, cast

from aiokafka.conn import CloseReason
from aiokafka.errors import IllegalStateError, KafkaConnectionError
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.threads import WorkerThread

from workers.kafka.errors import RecordsUnreadable
from workers.kafka.unpacking import tolerate

log = logging.getLogger(__name__)

_LAST_SECONDS: Final = 0.5
_HOLD_SECONDS: Final = 30.0


class _DaemonWorker(WorkerThread):
    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True


class ConsumerThread(driver.AIOKafkaConsumerThread):
    Worker = _DaemonWorker
    abandoned = False

    def _start_thread(self) -> None:
        try:
            super()._start_thread()
        except KafkaConnectionError as away:
            log.debug("raised where the thread was started, too: %s", away)
        except (RuntimeError, asyncio.CancelledError):
            if not self.abandoned:
                raise

    def _create_worker_consumer(self, transport: Any) -> Any:
        """faust fixes the longest fetch at 1.5 s; a broker that answers only at its end makes that the latency."""
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = int(cast(Any, self.app).fetch_wait.total_seconds() * 1000)
        return consumer

    async def on_start(self) -> None:
        """A broker that just started names no brokers, and aiokafka's coordinator dies of asking none of them."""
        await super().on_start()
        client = self._ensure_consumer()
        if not client._client.cluster.brokers():
            raise KafkaConnectionError("the cluster names no broker yet")
        tolerate(client._fetcher, self._hold)
        self._bound_heartbeats(client)

    def _bound_heartbeats(self, client: Any) -> None:
        """A connection that swallows everything: the broker has expelled us by then, and another one may answer."""
        coordinator = client._coordinator
        heartbeat = coordinator._do_heartbeat
        within = self.app.conf.broker_session_timeout

        async def bounded() -> bool:
            try:
                async with asyncio.timeout(within):
                    return bool(await heartbeat())
            except TimeoutError:
                log.warning("no answer to a heartbeat of %s: all connections are made anew", self.app.conf.id)
                coordinator.coordinator_dead()
                for connection in list(client._client._conns.values()):
                    connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
                return False

        coordinator._do_heartbeat = bounded

    def _hold(self, tp: TopicPartition, offset: int, problem: str) -> None:
        """Leave a partition that cannot be read on alone for a while; the others go on."""
        assignment = self._ensure_consumer()._subscription.subscription.assignment
        state = assignment.state_value(tp) if assignment is not None else None
        if state is None:
            return
        state.pause()
        self.thread_loop.call_later(_HOLD_SECONDS, state.resume)
        unreadable = RecordsUnreadable(tp.topic, tp.partition, offset, problem)
        log.error("%s; it is tried again every %d s", unreadable, _HOLD_SECONDS)

    async def seek_to_committed(self) -> Mapping[TP, Any]:
        """Every partition to its committed offset, None for those that have none and begin at their beginning.

        aiokafka's own leaves those where they are: records that were fetched and thrown away would not come again.
        """
        return cast(Mapping[TP, Any], await self.call_thread(self._seek_to_committed))

    async def _seek_to_committed(self) -> Mapping[TP, int | None]:
        client = self._ensure_consumer()
        subscription = client._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None or not assignment.tps:
            raise IllegalStateError("nothing is assigned")
        committed = await client._coordinator.fetch_committed_offsets(list(assignment.tps))
        if not assignment.active:
            raise IllegalStateError("assigned anew meanwhile")
        for tp, place in committed.items():
            client.seek(tp, place.offset)
        untouched = assignment.tps - committed.keys()
        if untouched:
            await client.seek_to_beginning(*untouched)
        return {tp: committed[tp].offset if tp in committed else None for tp in assignment.tps}

    def abandon(self) -> None:
        """End the thread, if there is one still, without a word to the broker."""
        self.abandoned = True
        if not self.thread_loop.is_closed():
            self.thread_loop.call_soon_threadsafe(self._end_loop)

    def _end_loop(self) -> None:
        for task in asyncio.all_tasks(self.thread_loop):
            task.cancel()
        self.thread_loop.call_later(_LAST_SECONDS, self.thread_loop.stop)

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        log.error("kafka client thread crashed: %s", msg.format(*fmt), exc_info=True)
