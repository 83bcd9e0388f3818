"""Postgres dies under load, more than once: intake waits, goes on by itself, and every event is one run."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from migrations import runner
from tests.intake.publishing import all_committed, one_each, publish, runs_in
from tests.support.crashing import Spawn, an_order
from tests.support.events import an_event
from tests.support.postgres_fixture import PostgresForTests
from tests.support.waiting import eventually
from workers.kafka import KafkaSettings
from workers.postgres.database import Database

SOON = timedelta(seconds=60)


@pytest.fixture
def own_postgres() -> Iterator[PostgresForTests]:
    """A server of this test alone, to kill and start again."""
    folder = Path(tempfile.mkdtemp(prefix="parley-pg-"))
    server = PostgresForTests(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.rule("EN-42", "EN-39", "EN-7")
async def test_an_intake_outlives_restarts_of_postgres_and_loses_and_repeats_nothing(
    own_postgres: PostgresForTests, settings: KafkaSettings, spawn_worker: Spawn
) -> None:
    url = own_postgres.create("restarts")
    await asyncio.to_thread(runner.upgrade, url)
    worker = spawn_worker(an_order(settings, url))
    worker.wait_until_started()
    events = [an_event(chat=f"chat-{n % 20}") for n in range(600)]

    for part in range(3):
        publishing = asyncio.create_task(publish(settings, events[part * 200 : part * 200 + 200]))

        def at_work(said: int = part * 1000) -> bool:
            return len(worker.text()) > said

        await eventually("it is at work", at_work)
        await asyncio.to_thread(own_postgres.kill_at_once)
        await publishing
        await asyncio.to_thread(own_postgres.start_again)

    await eventually("all offsets are committed", lambda: all_committed(settings, 600), SOON)
    database = await Database.open(url, max_size=1)
    assert await runs_in(database) == one_each(events)
    positions = await database.fetch(
        "select lane_id, count(*) as runs, max(position) as last from runs group by lane_id"
    )
    assert all(row["runs"] == row["last"] for row in positions)
    await database.close()
    assert worker.is_running()
    assert len(worker.text()) < 2_000_000
