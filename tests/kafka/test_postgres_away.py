"""Postgres is away while a backlog lies on the topic: intake waits in flat memory, and goes on by itself."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from migrations import runner
from tests.intake.publishing import all_committed
from tests.support.crashing import Spawn, WorkerProcess, an_order
from tests.support.events import an_event, sealed
from tests.support.postgres_fixture import PostgresForTests
from tests.support.waiting import eventually
from workers.kafka import KafkaSettings, RecordProducer
from workers.kafka.reader import read_topic
from workers.postgres.database import Database

pytestmark = pytest.mark.kafka

MIB = 1024 * 1024
TEXT = "x" * 4000
BACKLOG, MORE = 12_000, 8_000
HANGING_SECONDS, GONE_SECONDS = 10.0, 6.0
GROWTH_BYTES = 32 * MIB
"""What may be held over what a worker needs at work: the client's fetches, the queue and one batch."""
WOBBLE_BYTES = 12 * MIB
SOON, LATE = timedelta(seconds=60), timedelta(seconds=240)


@pytest.fixture
def own_postgres() -> Iterator[PostgresForTests]:
    """A server of this test alone, to stop and kill."""
    folder = Path(tempfile.mkdtemp(prefix="parley-pg-"))
    server = PostgresForTests(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


def signal_all(server: PostgresForTests, number: signal.Signals) -> None:
    """To the postmaster first, so that it starts no other, and then to each process that it has."""
    pid = server._server.get_pid()
    assert pid is not None
    os.kill(pid, number)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
        os.kill(int(child), number)


async def kill_and_wait(server: PostgresForTests) -> None:
    """An immediate shutdown of a server that runs or is stopped."""
    signal_all(server, signal.SIGCONT)
    await asyncio.to_thread(server.kill_at_once)


async def publish_many(settings: KafkaSettings, numbers: range) -> None:
    """Signed events of a hundred chats, 4 kB each."""
    async with RecordProducer(settings) as producer:
        for start in range(numbers.start, numbers.stop, 500):
            records = [
                sealed(an_event(chat=f"chat-{n % 100}", event_id=f"E{n}", text=TEXT))
                for n in range(start, min(start + 500, numbers.stop))
            ]
            await producer.send_many(
                settings.events_topic, [(each.key, each.value, list(each.headers)) for each in records]
            )


def resident_bytes(worker: WorkerProcess) -> int:
    for line in Path(f"/proc/{worker.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the worker has ended")


async def watched(worker: WorkerProcess, seconds: float) -> list[int]:
    """The worker's memory, four times a second."""
    samples, until = list[int](), time.monotonic() + seconds
    while time.monotonic() < until:
        samples.append(resident_bytes(worker))
        await asyncio.sleep(0.25)
    return samples


def members(settings: KafkaSettings) -> set[str]:
    """Ids of the members of the intake group."""
    group = settings.group("intake")
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(20)
    return {member.member_id for member in described.members}


def all_are_committed(settings: KafkaSettings, records: int) -> Callable[[], Any]:
    """For `eventually`."""
    return lambda: all_committed(settings, records)


async def runs(url: str) -> tuple[int, int]:
    """How many, and of how many events."""
    database = await Database.open(url, max_size=1)
    rows = await database.fetch("select count(*), count(distinct event_id) from runs")
    await database.close()
    return rows[0][0], rows[0][1]


@pytest.mark.rule("EN-6", "EN-39")
async def test_postgres_away_behind_a_backlog_leaves_memory_flat_and_everything_admitted_later(
    own_postgres: PostgresForTests, settings: KafkaSettings, spawn_worker: Spawn
) -> None:
    """It hangs first (stopped in the middle of statements), then it is gone, then it is back."""
    url = own_postgres.create("away")
    await asyncio.to_thread(runner.upgrade, url)
    worker = spawn_worker(an_order(settings, url, app="tests.kafka.lone_app:a_lone_app"))
    worker.wait_until_started()
    await publish_many(settings, range(500))
    await eventually("it is at work", all_are_committed(settings, 500), SOON)
    at_work, joined = resident_bytes(worker), await asyncio.to_thread(members, settings)

    signal_all(own_postgres, signal.SIGSTOP)
    await publish_many(settings, range(500, BACKLOG))
    hanging = await watched(worker, HANGING_SECONDS)
    await kill_and_wait(own_postgres)
    await publish_many(settings, range(BACKLOG, BACKLOG + MORE))
    gone = await watched(worker, GONE_SECONDS)
    still_joined = await asyncio.to_thread(members, settings)
    await asyncio.to_thread(own_postgres._server.ensure_postgres_running)
    await eventually("all is committed", all_are_committed(settings, BACKLOG + MORE), LATE)

    assert max(hanging + gone) - at_work < GROWTH_BYTES
    assert max(gone) - max(hanging) < WOBBLE_BYTES
    assert joined == still_joined == await asyncio.to_thread(members, settings)
    assert len(joined) == 1
    assert await runs(url) == (BACKLOG + MORE, BACKLOG + MORE)
    assert [record async for record in read_topic(settings, settings.dead_topic)] == []
    assert worker.is_running()
    assert worker.text().count("worker.started") == 1
