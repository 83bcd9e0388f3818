"""One installation behind proxies: a worker of `parley serve`, and what a supervisor sees of it.

Tests publish and look past the proxies; only the worker goes through them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from tests.delivery.crashing_sender import FileLedger
from tests.outages.app import LEDGER
from tests.outages.proxy import Proxy
from tests.support.events import an_event, sealed
from tests.support.kafka.broker import free_ports
from tests.support.kafka.topics import Topics
from tests.support.waiting import eventually
from workers.kafka import KafkaSettings, RecordProducer
from workers.kafka.reader import read_topic
from workers.postgres.database import Database

ROOT: Final = Path(__file__).parents[2]
SOON: Final = timedelta(seconds=60)
GROWTH_BYTES: Final = 64 * 2**20
FIRST_LINES: Final = 60
"""What may be said when something breaks or comes back."""
LINES_A_SECOND: Final = 4.0
"""What may be said for each second that it stays away."""
SENT: Final = b'"event":"delivery.sent"'


@dataclass(frozen=True, slots=True)
class Mark:
    """How much a worker had said, and how large it was."""

    lines: int
    resident_bytes: int


class Served:
    """One `parley serve`; `port` is its probes'."""

    def __init__(self, environment: dict[str, str], log: Path, *options: str) -> None:
        [self.port] = free_ports(1)
        self.log = log
        parley = str(Path(sys.executable).with_name("parley"))
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [parley, "serve", "tests.outages.app:app", "--port", str(self.port), *options],
                cwd=ROOT,
                env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def asked(self, path: str) -> tuple[int, dict[str, bool]]:
        """Status and answer of a probe; status 0 while nobody listens yet."""
        assert self.process.poll() is None, self.told()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.loads(refusal.read())
        except urllib.error.URLError:
            return 0, {}

    def complaints(self) -> set[str]:
        """The probes that say no, after `/readyz`; `starting` before it listens."""
        status, answer = self.asked("/readyz")
        no = {name for name, holds in answer.items() if not holds}
        assert status in (0, 503 if no else 200)
        assert not status or answer, "ready before anything was asked"
        return no if status else {"starting"}

    def lines(self) -> int:
        """So many were written; work that goes on counts nothing."""
        return sum(SENT not in line for line in self.log.read_bytes().splitlines())

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1]) * 4096

    def mark(self) -> Mark:
        """Where it stands before a fault."""
        return Mark(self.lines(), self.resident_bytes())

    def has_stayed_small(self, since: Mark, lines: int = 200) -> None:
        """Assert that the fault since then cost few lines and little memory."""
        assert self.lines() - since.lines < lines, self.told()
        assert self.resident_bytes() - since.resident_bytes < GROWTH_BYTES

    def told(self) -> str:
        return self.log.read_text("utf-8", "replace")[-6000:]

    async def ready(self) -> None:
        """Wait until nothing is missing."""
        try:
            await eventually("it is ready", self._nothing_missing, SOON)
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {await asyncio.to_thread(self.complaints)}\n{self.told()}"
            ) from error

    async def _nothing_missing(self) -> bool:
        return not await asyncio.to_thread(self.complaints)

    async def endures(self, seconds: float, missing: Collection[str], begun: int = 0) -> None:
        """It says what is `missing` soon, and for `seconds` after that: no more than that, alive, quiet and small.

        `begun` is how many lines there were before the fault.
        """
        wanted = set(missing)

        async def says_so() -> bool:
            return await asyncio.to_thread(self.complaints) == wanted

        since = time.monotonic()
        try:
            await eventually(f"it misses {wanted}", says_so, SOON)
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {await asyncio.to_thread(self.complaints)}\n{self.told()}"
            ) from error
        before, until = self.resident_bytes(), time.monotonic() + seconds
        while time.monotonic() < until:
            status, _ = await asyncio.to_thread(self.asked, "/healthz")
            assert status == 200
            assert await asyncio.to_thread(self.complaints) == wanted, self.told()
            assert self.resident_bytes() - before < GROWTH_BYTES
            await asyncio.sleep(0.3)
        said, away = self.lines() - begun, time.monotonic() - since
        assert said < FIRST_LINES + LINES_A_SECOND * away, f"{said} lines in {away:.0f} s\n{self.told()}"

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass
class Site:
    """A database, topics, and the proxies that its workers go through."""

    kafka: KafkaSettings
    url: str
    through: dict[str, Proxy]
    """`kafka` and `postgres`."""
    environment: dict[str, str]
    folder: Path
    topics: Topics
    producer: RecordProducer
    database: Database
    workers: list[Served] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def serve(self, *options: str, **variables: str) -> Served:
        """Start a worker; `options` are those of `parley serve`, `variables` replace the site's."""
        self.ledger_file.touch()
        environment = {**self.environment, **variables, LEDGER: str(self.ledger_file)}
        self.workers.append(Served(environment, self.folder / f"worker-{len(self.workers)}.log", *options))
        return self.workers[-1]

    @property
    def ledger_file(self) -> Path:
        return self.folder / "ledger"

    async def publish(self, count: int, padding: int = 0) -> None:
        """So many signed events, each in a chat of its own; `padding` are bytes that no reply repeats."""
        fresh = [f"m{len(self.texts) + number}" for number in range(count)]
        self.texts.extend(fresh)
        records = [sealed(an_event(text=f"{text} {'x' * padding}", chat=text)) for text in fresh]
        await self.producer.send_many(
            self.kafka.events_topic, [(each.key, each.value, list(each.headers)) for each in records]
        )

    async def answered(self) -> None:
        """Wait until every event is answered; then each is answered once, and none was refused."""

        ledger = FileLedger(self.ledger_file)

        def all_there() -> bool:
            return len(ledger.messages()) >= len(self.texts)

        async def settled() -> bool:
            row = await self.database.fetchrow(
                "select (select count(*) from runs where finished_at is null)"
                " + (select count(*) from deliveries where finished_at is null)"
            )
            return row is not None and row[0] == 0

        try:
            await eventually(f"{len(self.texts)} answers", all_there, SOON)
            await eventually("all is settled", settled, SOON)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.workers[-1].told()}") from error
        assert sorted(message.text for message in ledger.messages()) == sorted(self.texts)
        assert [record async for record in read_topic(self.kafka, self.kafka.dead_topic)] == []
        assert all(worker.process.poll() is None for worker in self.workers)

    async def close(self) -> None:
        for worker in self.workers:
            worker.close()
        await self.producer.stop()
        await self.database.close()
