"""Intake on a real consumer, and beside it the turns role in a worker of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.intake.conftest import a_desk
from tests.intake.publishing import publish
from tests.support.crashing import an_app
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.kafka import Batch, KafkaSettings, RecordConsumer
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.postgres.database import Database
from workers.postgres.hints import Hints
from workers.roles.settings import Role, Settings
from workers.roles.worker import Worker

SOON = timedelta(seconds=40)


@pytest.mark.rule("EN-12")
async def test_the_gap_behind_an_undecided_event_is_bounded_and_closes_in_order(
    database_url: str, settings: KafkaSettings
) -> None:
    """Reading stops at the bound of un-acknowledged records, whichever conversations they belong to."""
    repaired = False

    async def policy(access: Access) -> Allow:
        if access.event.chat == "stuck" and not repaired:
            raise ConnectionError
        return Allow()

    narrow = replace(settings, outstanding_records=40, batch_records=10, buffer_records=20)
    events = [an_event(chat="stuck" if n % 2 else "free", event_id=f"E{n:03}") for n in range(200)]
    await publish(narrow, events, [0] * len(events))
    agents, conversations = [an_agent(conversation=True)], Conversations(policy)
    async with a_desk(database_url, narrow, agents=agents, conversations=conversations) as desk:
        consumer = RecordConsumer(narrow, narrow.events_topic, "intake")

        async def handle(batch: Batch) -> None:
            await desk.intake.handle(batch.records, consumer.ack)

        reading = asyncio.create_task(consumer.run(handle))
        await eventually("reading stops at the bound", lambda: consumer.outstanding >= 40, SOON)
        for _ in range(20):
            await desk.intake.retry_parked(consumer.ack)
        parked, admitted = desk.intake.parked, len(await desk.runs())

        repaired = True

        async def all_admitted() -> bool:
            await desk.intake.retry_parked(consumer.ack)
            return len(await desk.runs()) == 200

        await eventually("everything is admitted", all_admitted, SOON)
        rows = await desk.database.fetch("select lane_id, event_id from runs order by lane_id, position")
        consumer.drain()
        await reading
        await consumer.stop()

    assert parked <= 50
    assert 0 < admitted <= 50
    for lane in {row["lane_id"] for row in rows}:
        mine = [row["event_id"] for row in rows if row["lane_id"] == lane]
        assert mine == sorted(mine)
        assert len(mine) == 100


@asynccontextmanager
async def running(settings: Settings, *, hints: bool) -> AsyncIterator[Worker]:
    worker = Worker(an_app(), settings)
    if not hints:
        worker._hints = Hints(None)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.drain()


@pytest.mark.rule("EN-43")
@pytest.mark.parametrize("hints", [True, False], ids=["with hints", "every hint lost"])
async def test_turns_in_another_worker_find_what_intake_admitted(
    database_url: str, settings: KafkaSettings, hints: bool
) -> None:
    def only(role: Role) -> Settings:
        return Settings(database_url, settings, roles=frozenset([role]), http_port=0, pool_size=4)

    database = await Database.open(database_url, max_size=2)
    async with running(only("intake"), hints=hints), running(only("turns"), hints=hints):
        events = [an_event() for _ in range(20)]
        await publish(settings, events)

        async def succeeded() -> bool:
            rows = await database.fetch("select from runs where status = 'succeeded'")
            return len(rows) == 40

        await eventually("both agents' runs are done", succeeded, SOON)

    [row] = await database.fetch(
        "select max(started_at - admitted_at) as slowest, count(*) as runs from runs where attempts <= 1"
    )
    await database.close()
    assert row["runs"] == 40
    assert row["slowest"] < timedelta(seconds=5)
