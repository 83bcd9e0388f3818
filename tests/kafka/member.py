"""A group member to kill: prints what it reads; `ack` all, `hold` all, or be `stuck` in the first batch."""

import asyncio
import json
import sys
from dataclasses import replace
from datetime import timedelta

import uvloop

from workers.kafka import Batch, KafkaSettings, RecordConsumer, bound_client_logs


def say(kind: str, value: object) -> None:
    print(json.dumps({kind: value}), flush=True)


async def main(bootstrap: str, prefix: str, topic: str, role: str, behaviour: str) -> None:
    bound_client_logs()
    settings = replace(
        KafkaSettings.embedded(bootstrap), group_prefix=prefix, commit_every=timedelta(milliseconds=200)
    )
    consumer = RecordConsumer(settings, topic, role)

    async def handle(batch: Batch) -> None:
        for record in batch:
            say("record", [record.partition, record.offset, (record.value or b"")[:40].decode()])
        if behaviour == "stuck":
            await asyncio.Event().wait()
        if behaviour == "ack":
            batch.ack()

    async def report() -> None:
        before: frozenset[int] | None = None
        while True:
            if consumer.joined and consumer.assignment != before:
                before = consumer.assignment
                say("assignment", sorted(before))
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run(handle))
        tasks.create_task(report())


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
