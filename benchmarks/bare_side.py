"""The bare loop: consume, three commits and a POST a message, 64 at once; no promise of any kind beyond that.

It reads neither signature nor envelope, keeps no order, no memory, no ownership, and after a crash it cannot
tell what was sent. Run as a child process: `python -m benchmarks.bare_side DATABASE BOOTSTRAP RECEIVER TOPIC`.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import aiohttp
import asyncpg
import orjson
import uvloop
from aiokafka import AIOKafkaConsumer

from benchmarks.processes import say

BATCH: Final = 500
AT_ONCE: Final = 64
POOL: Final = 8

TABLE: Final = """
create table bare_turns (
    event_id   text primary key,
    chat       text        not null,
    state      text        not null,
    event      bytea       not null,
    created_at timestamptz not null default now(),
    changed_at timestamptz
)
"""
INSERT: Final = "insert into bare_turns (event_id, chat, state, event) values ($1, $2, 'received', $3)"
UPDATE: Final = "update bare_turns set state = $2, changed_at = now() where event_id = $1"


class BareLoop:
    """What happens to one event after the other."""

    def __init__(self, pool: Any, http: aiohttp.ClientSession, receiver: str) -> None:
        self._pool = pool
        self._http = http
        self._receiver = receiver

    async def run(self, consumer: Any) -> None:
        """Until cancelled; offsets are committed after each batch."""
        while True:
            batches = await consumer.getmany(timeout_ms=500, max_records=BATCH)
            records = iter([record for batch in batches.values() for record in batch])
            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(self._work(records))
            if batches:
                await consumer.commit()

    async def _work(self, records: Iterator[Any]) -> None:
        for record in records:
            event = orjson.loads(record.value)
            event_id = event["event_id"]
            await self._pool.execute(INSERT, event_id, event["chat"], record.value)
            await self._pool.execute(UPDATE, event_id, "sending")
            await self._post(event_id, event["text"])
            await self._pool.execute(UPDATE, event_id, "sent")

    async def _post(self, event_id: str, text: str) -> None:
        headers = {"content-type": "application/json", "webhook-id": event_id}
        body = orjson.dumps({"text": text})
        async with self._http.post(self._receiver, data=body, headers=headers) as answer:
            answer.raise_for_status()
            await answer.read()


async def _leave_as_is(connection: Any) -> None:
    """Nothing to reset on release; the worker's own pool saves that round trip as well."""


async def serve(database: str, bootstrap: str, receiver: str, topic: str) -> None:
    """Start, say when, run until SIGTERM."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    say(started=time.monotonic_ns())
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="bare",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with (
        asyncpg.create_pool(database, min_size=POOL, max_size=POOL, reset=_leave_as_is) as pool,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as http,
    ):
        await pool.execute(TABLE)
        await consumer.start()
        try:
            await BareLoop(pool, http, receiver).run(consumer)
        finally:
            await consumer.stop()


def main() -> None:
    try:
        uvloop.run(serve(*sys.argv[1:5]))
    except asyncio.CancelledError:
        return


if __name__ == "__main__":
    main()
