"""Whole workers under test: in this loop, or in processes that can be killed; and what they left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import orjson
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from schemas.envelope import SealedEvent
from schemas.event import Event
from tests.support.events import sealed
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from tests.support.waiting import eventually
from tests.support.worker_process import Life, ledger_of
from workers.app import App
from workers.channels.lab import Received
from workers.kafka.producer import RecordProducer
from workers.kafka.settings import KafkaSettings
from workers.postgres.database import Database
from workers.roles.worker import Worker

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = timedelta(seconds=90)


class Nursery:
    """The process that worker processes are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.worker_process"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def fork(self, life: Life) -> Child:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps(asdict(life)) + b"\n")
        self._process.stdin.flush()
        return Child(life, int(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Child:
    """One worker process."""

    life: Life
    pid: int

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    async def serving(self) -> int:
        """Wait until it has started; its HTTP port."""
        lines = await eventually(f"{self.life.name} serves", self._said, PATIENCE)
        return int(orjson.loads(lines[0])["port"])

    def _said(self) -> list[bytes]:
        assert self.alive, self.end_of_log()
        return self.life.output.read_bytes().splitlines() if self.life.output.exists() else []

    async def died(self) -> None:
        """Wait until the process is gone."""
        await eventually(f"{self.life.name} died at {self.life.dies_at}", lambda: not self.alive, PATIENCE)

    async def kill(self) -> None:
        """kill -9, and gone when this returns."""
        self.signal(signal.SIGKILL)
        await self.died()

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def end_of_log(self) -> str:
        return self.life.log.read_text("utf-8", "replace")[-4000:] if self.life.log.exists() else "(no log)"

    async def scrape(self, path: str = "/metrics") -> str:
        port = await self.serving()
        return await asyncio.to_thread(_get, f"http://127.0.0.1:{port}{path}")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


@dataclass
class Site:
    """One installation: a database, topics, a folder for what outlives processes, and the processes."""

    database: Database
    life: Life
    nursery: Nursery
    producer: RecordProducer
    children: list[Child] = field(default_factory=list)

    def start(self, **changes: Any) -> Child:
        """Fork a worker; `changes` are fields of its Life."""
        child = self.nursery.fork(replace(self.life, **{"name": f"life-{len(self.children)}", **changes}))
        self.children.append(child)
        return child

    @property
    def kafka(self) -> KafkaSettings:
        return self.life.kafka()

    async def publish(self, *events: Event | SealedEvent) -> None:
        """Publish signed events, in order."""
        records = [each if isinstance(each, SealedEvent) else sealed(each) for each in events]
        await self.producer.send_many(
            self.kafka.events_topic, [(record.key, record.value, record.headers) for record in records]
        )

    def received(self) -> list[Received]:
        """What the lab's peer holds."""
        return list(ledger_of(self.life).messages())

    def texts(self) -> list[str]:
        return [message.text for message in self.received()]

    async def answered(self, at_least: int, within: timedelta = PATIENCE) -> list[str]:
        """Wait until the lab's peer holds so many messages; their texts."""
        await eventually(f"{at_least} messages", lambda: len(self.received()) >= at_least, within)
        return self.texts()

    def notes(self) -> list[str]:
        """What the agents of all processes noted, in order."""
        return self.life.noted()

    async def rows(self, statement: str, *arguments: object) -> list[dict[str, Any]]:
        return [dict(row.items()) for row in await self.database.fetch(statement, *arguments)]  # type: ignore[attr-defined]  # the driver's rows are mappings

    async def value(self, statement: str, *arguments: object) -> Any:
        row = await self.database.fetchrow(statement, *arguments)
        return None if row is None else row[0]

    async def settled(self, runs: int, within: timedelta = PATIENCE) -> None:
        """Wait until so many runs have ended and every delivery is final."""

        async def holds() -> Any:
            ended = await self.value("select count(*) from runs where finished_at is not null")
            total = await self.value("select count(*) from runs")
            unfinished = await self.value("select count(*) from deliveries where finished_at is null")
            return bool(ended >= runs and total == ended and unfinished == 0)

        try:
            await eventually(f"{runs} runs ended and sent", holds, within)
        except AssertionError as error:
            runs_now = await self.rows("select event_id, agent, status, reason, epoch, crashes from runs")
            deliveries = await self.rows("select key, state, reason, attempt from deliveries")
            logs = "\n".join(child.end_of_log() for child in self.children[-2:])
            raise AssertionError(f"{error}\n{runs_now}\n{deliveries}\n{logs}") from error


@contextmanager
def a_nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    try:
        yield nursery
    finally:
        nursery.close()


@asynccontextmanager
async def a_site(
    database_url: str, kafka: KafkaCluster, topics: Topics, nursery: Nursery, folder: Path, **life: Any
) -> AsyncIterator[Site]:
    """An installation without workers; those that the test started are killed at its end."""
    own = Life(
        **{
            "app": "tests.worker.apps:echo",
            "folder": str(folder),
            "name": "life",
            "database_url": database_url,
            "bootstrap": kafka.bootstrap,
            "topics": topics.names(),
            "group": f"g{uuid.uuid4().hex[:8]}",
            **life,
        }
    )
    database = await Database.open(database_url, max_size=2, application_name="parley-test")
    producer = RecordProducer(own.kafka())
    site = Site(database, own, nursery, producer)
    try:
        await producer.start(own.kafka().events_topic)
        yield site
    finally:
        for child in site.children:
            child.signal(signal.SIGKILL)
        await producer.stop()
        await database.close()


@asynccontextmanager
async def a_worker(site: Site, app: App, **settings: Any) -> AsyncIterator[Worker]:
    """A whole worker of the site in this loop, drained at the end; `settings` replace those of the site's lives."""
    worker = Worker(app, replace(site.life.settings(), **settings))
    await worker.start()
    try:
        yield worker
    finally:
        await worker.drain()


def counted(metrics: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples whose labels include `labels`, in the text of one scrape."""
    total = 0.0
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                total += sample.value
    return total


def end_offsets(kafka: KafkaCluster, topic: str) -> int:
    """How many records were ever written to the topic."""
    consumer = Consumer({**kafka.for_librdkafka(), "group.id": "nobody"})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in partitions
        )
    finally:
        consumer.close()
