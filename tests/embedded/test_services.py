"""The embedded services outlive the workers, keep the database, and serve two groups of one member each."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from tests.kafka.conftest import Member
from tests.support.waiting import eventually, wait_until
from workers.embedded import Running, embedded_services
from workers.embedded.services import STATE_FILE
from workers.kafka import Batch, KafkaSettings, Record, RecordConsumer, RecordProducer
from workers.kafka.broker import require_topics
from workers.kafka.topics import touch_topics

SOON = timedelta(seconds=30)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One pair of services for this module."""
    data = tmp_path_factory.mktemp("embedded") / "data"
    process = start(data)
    assert process.stdout is not None
    yield Running.read(process.stdout.readline().decode())
    process.terminate()
    assert process.wait(20) == 0


def start(data: Path, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "workers.embedded", "--data", str(data), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def begin(settings: KafkaSettings, topic: str, role: str, behaviour: str) -> Member:
        members.append(Member(settings, topic, role, behaviour, tmp_path / f"member-{len(members)}"))
        return members[-1]

    yield begin
    for member in members:
        member.close()


@asynccontextmanager
async def reading(settings: KafkaSettings, topic: str, role: str) -> AsyncIterator[list[Record]]:
    consumer, read = RecordConsumer(settings, topic, role), list[Record]()

    async def handle(batch: Batch) -> None:
        read.extend(batch)
        batch.ack()

    running = asyncio.create_task(consumer.run(handle))
    yield read
    consumer.drain()
    await running
    await consumer.stop()


async def test_topics_appear_when_asked_about_and_hold_nothing(services: Running) -> None:
    settings = KafkaSettings.embedded(services.bootstrap).with_topics(events="e1", deliveries="d1", dead="x1")
    await touch_topics(settings)
    states = await require_topics(settings, settings.topics)
    assert [states[topic].partitions for topic in settings.topics] == [4, 4, 4]
    async with RecordProducer(settings) as producer, reading(settings, "e1", "intake") as read:
        await producer.send("e1", b"k", b"first")
        await eventually("one record", lambda: read, SOON)
    assert [(r.value, r.offset) for r in read] == [(b"first", 0)]


async def test_two_groups_on_two_topics_run_at_once(services: Running) -> None:
    settings = KafkaSettings.embedded(services.bootstrap).with_topics(events="e2", deliveries="d2", dead="x2")
    await touch_topics(settings)
    async with (
        RecordProducer(settings) as producer,
        reading(settings, "e2", "intake") as events,
        reading(settings, "d2", "delivery") as deliveries,
    ):
        await producer.send_many("e2", [(b"%d" % n, b"event", []) for n in range(200)])
        await producer.send_many("d2", [(b"%d" % n, b"delivery", []) for n in range(200)])
        await eventually("all", lambda: len(events) == len(deliveries) == 200, SOON)
    assert {r.value for r in events} == {b"event"}
    assert {r.value for r in deliveries} == {b"delivery"}


async def test_after_a_killed_worker_a_new_one_reads_what_was_not_acknowledged(
    services: Running, spawn: Callable[..., Member]
) -> None:
    settings = KafkaSettings.embedded(services.bootstrap).with_topics(events="e3", deliveries="d3", dead="x3")
    await touch_topics(settings)
    async with RecordProducer(settings) as producer:
        await producer.send_many("e3", [(b"k", b"%d" % n, []) for n in range(5)])
    member = spawn(settings, "e3", "intake", "hold")
    await eventually("read there", lambda: len(member.said("record")) == 5, SOON)
    member.kill()
    async with reading(settings, "e3", "intake") as read:
        await eventually("read again here", lambda: len(read) == 5, timedelta(seconds=40))


async def test_the_database_has_vectors_and_keeps_its_rows_over_a_restart(tmp_path: Path) -> None:
    async with embedded_services(tmp_path / "data") as running:
        connection = await asyncpg.connect(running.database_url)
        await connection.execute(
            "create extension vector; create table kept (n int); insert into kept values (7)"
        )
        await connection.close()
        assert Running.read((tmp_path / "data" / STATE_FILE).read_text("utf-8")) == running
    assert not is_alive(running.pid)
    assert not (tmp_path / "data" / STATE_FILE).exists()
    async with embedded_services(tmp_path / "data") as again:
        connection = await asyncpg.connect(again.database_url)
        assert await connection.fetchval("select n from kept") == 7
        await connection.close()


def test_services_killed_with_9_take_postgres_along_and_start_again(tmp_path: Path) -> None:
    first = start(tmp_path / "data")
    assert first.stdout is not None
    Running.read(first.stdout.readline().decode())
    postmaster = int((tmp_path / "data" / "postgres" / "postmaster.pid").read_text("utf-8").split("\n")[0])
    first.kill()
    first.wait()
    wait_until("postgres is gone", lambda: not is_alive(postmaster))
    second = start(tmp_path / "data")
    assert second.stdout is not None
    assert Running.read(second.stdout.readline().decode()).pid == second.pid
    second.terminate()
    assert second.wait(20) == 0


def test_services_end_with_their_parent(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-m', 'workers.embedded', '--data', {str(tmp_path / 'data')!r},"
        " '--die-with-parent'], stdout=subprocess.PIPE, start_new_session=True)\n"
        "print(child.stdout.readline().decode(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert parent.stdout is not None
    running = Running.read(parent.stdout.readline().decode())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until("the services are gone", lambda: not is_alive(running.pid), SOON)


async def test_without_a_directory_a_warning_says_that_history_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with embedded_services() as running:
        assert running.database_url.startswith("postgresql://")
    assert "a restart loses history" in caplog.text
