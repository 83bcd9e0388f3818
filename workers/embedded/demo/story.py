"""The demo's story: three messages to an agent, one worker killed on the way, one connection dropped.

Postgres and the broker run in a process of their own, the worker in another, which is killed with SIGKILL; the
platform that posts and receives is this process.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from migrations import runner
from workers.embedded.demo.checks import judge
from workers.embedded.demo.evidence import Evidence, Said, deliveries_of, notes_of, runs_of, steps_of
from workers.embedded.demo.plan import LEASE_SECONDS, Fault, Plan
from workers.embedded.demo.platform import Platform
from workers.embedded.demo.process import WorkerProcess
from workers.embedded.demo.report import Report
from workers.embedded.services import embedded_services
from workers.kafka.settings import KafkaSettings
from workers.kafka.topics import touch_topics
from workers.postgres.database import Database
from workers.postgres.sql import load

READ_OPEN_WORK = load(__package__, "read_open_work")

KILLED_AFTER = 2
"""Journal commits: the model's first answer, and the note it saved; no reply yet."""
PATIENCE = timedelta(seconds=30)
BROKEN_PATIENCE = timedelta(seconds=12)

FIRST = "Remember that my parcel goes to Lisbon"
SECOND = "Where does my parcel go?"
THIRD = "Thank you"


async def run_demo(fault: Fault | None, console: Console) -> bool:
    """Tell the story, print what held; True when everything did. Raises WorkerEnded."""
    began = time.monotonic()
    report = Report(console, fault)
    report.opening()
    key = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    with tempfile.TemporaryDirectory(prefix="parley-demo-") as folder:
        async with embedded_services(Path(folder, "services")) as services:
            await asyncio.to_thread(runner.upgrade, services.database_url)
            await touch_topics(KafkaSettings.embedded(services.bootstrap))
            plan = Plan(
                services.database_url, services.bootstrap, "", key, f"{folder}/asked", fault, KILLED_AFTER
            )
            async with Platform(plan.key) as platform, _database(plan) as database:
                story = _Story(
                    replace(plan, replies_to=platform.url), platform, database, report, Path(folder)
                )
                evidence = await story.tell()
    checks = judge(evidence)
    report.closing(evidence, checks, time.monotonic() - began)
    return all(check.holds for check in checks)


@asynccontextmanager
async def _database(plan: Plan) -> AsyncIterator[Database]:
    database = await Database.open(plan.database_url, max_size=2, application_name="parley-demo")
    try:
        yield database
    finally:
        await database.close()


class _Story:
    def __init__(
        self, plan: Plan, platform: Platform, database: Database, report: Report, folder: Path
    ) -> None:
        self._plan = plan
        self._platform = platform
        self._database = database
        self._report = report
        self._folder = folder
        self._said: list[Said] = []
        self._patience = PATIENCE if plan.fault is None else BROKEN_PATIENCE

    async def tell(self) -> Evidence:
        first = self._worker(self._plan)
        try:
            await first.start()
            self._report.line(f"worker {first.pid} serves on port {first.port}")
            await self._say(first, "event-1", FIRST, times=3)
            await first.stands_still()
        finally:
            await first.kill()
        self._report.line(
            f"worker {first.pid} killed with SIGKILL in the middle of the turn: the note is saved, no reply yet"
        )
        second = self._worker(replace(self._plan, dies_after=None))
        try:
            await second.start()
            self._report.line(
                f"worker {second.pid} started; the dead one's lease of {LEASE_SECONDS} s must run out"
            )
            await self._quiet("event-1")
            await self._say(second, "event-2", SECOND)
            await self._quiet("event-2")
            await self._say(second, "event-3", THIRD)
            await self._quiet("event-3")
            metrics = await self._platform.metrics(second.port)
        finally:
            exit_code = await second.stop()
        return await self._evidence(metrics, exit_code)

    def _worker(self, plan: Plan) -> WorkerProcess:
        return WorkerProcess(plan, self._folder / "worker.log")

    async def _say(self, worker: WorkerProcess, event_id: str, text: str, times: int = 1) -> None:
        statuses = await self._platform.post(worker.port, event_id, text, times)
        self._said.append(Said(event_id, text, statuses))
        self._report.said(text, statuses)

    async def _quiet(self, event_id: str) -> None:
        """Wait until the event has its run and nothing is open any more, or give up; tell what was received."""
        heard = len(self._platform.attempts)
        deadline = time.monotonic() + self._patience.total_seconds()
        while time.monotonic() < deadline:
            row = await self._database.fetchrow(READ_OPEN_WORK, event_id)
            assert row is not None
            if row["admitted"] and row["runs"] == row["deliveries"] == 0:
                break
            await asyncio.sleep(0.05)
        else:
            self._patience = timedelta(seconds=4)
            self._report.line("gave up waiting: something is stuck")
        self._report.received(self._platform.attempts[heard:])

    async def _evidence(self, metrics: str, exit_code: int) -> Evidence:
        runs = await runs_of(self._database)
        asked = Path(self._plan.asked_log).read_text(encoding="utf-8").splitlines()
        return Evidence(
            said=self._said,
            runs=runs,
            steps={run.id: await steps_of(self._database, run) for run in runs},
            deliveries=await deliveries_of(self._database),
            notes=await notes_of(self._database),
            attempts=self._platform.attempts,
            asked=len(asked),
            metrics=metrics,
            exit_code=exit_code,
        )
