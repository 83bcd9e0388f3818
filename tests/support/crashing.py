"""Whole workers in processes of their own, which kill themselves with SIGKILL when a point is reached.

Points are the names that rooms pass to `reached`: `admission.before_commit`, `admission.committed`,
`intake.acknowledged` and so on. Run as `python -m tests.support.crashing JSON`; tests use `WorkerProcess`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.events import KEYS, an_agent
from tests.support.waiting import wait_until
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.kafka import KafkaSettings, bound_client_logs
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.roles.settings import Settings
from workers.roles.worker import Worker

REPOSITORY = Path(__file__).parents[2]
STARTS_WITHIN = timedelta(seconds=40)


async def echo(turn: Turn) -> None:
    """Replies with what was said."""
    await turn.reply(turn.event.text)


async def allow(access: Access) -> Allow:
    """A policy that lets everybody in."""
    return Allow()


def an_app() -> App:
    """An unbound and a bound agent that echo, both listening to the `lab` channel."""
    return App(
        "crashing",
        agents=[an_agent("echo", runs=echo), an_agent("helper", runs=echo, conversation=True)],
        channels=[LabChannel(keys=KEYS)],
        conversations=Conversations(allow),
    )


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker process is to be; `dies_at` is reached for the `nth` time when it kills itself."""

    database_url: str
    bootstrap: str
    topics: tuple[str, str, str]
    group_prefix: str
    roles: tuple[str, ...] = ("intake",)
    app: str = "tests.support.crashing:an_app"
    dies_at: str = ""
    nth: int = 1
    lease_s: float = 15.0

    def kafka(self) -> KafkaSettings:
        """As `KafkaSettings.embedded`, with the topics and the group of the test."""
        events, deliveries, dead = self.topics
        base = KafkaSettings.embedded(self.bootstrap).with_topics(
            events=events, deliveries=deliveries, dead=dead
        )
        return replace(base, group_prefix=self.group_prefix, commit_every=timedelta(milliseconds=200))


def an_order(kafka: KafkaSettings, database_url: str, **changes: object) -> Order:
    """A worker on these services."""
    order = Order(database_url, kafka.bootstrap, kafka.topics, kafka.group_prefix)  # type: ignore[arg-type]
    return replace(order, **changes)  # type: ignore[arg-type]  # dataclasses checks the names


class WorkerProcess:
    """One worker; `close()` kills it if it still runs."""

    def __init__(self, order: Order, output: Path) -> None:
        self.output = output
        with output.open("wb") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.crashing", json.dumps(asdict(order))],
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
                cwd=REPOSITORY,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_killed(self, within: timedelta = STARTS_WITHIN) -> None:
        """Until it died of SIGKILL; fails with its output when it ended in another way."""
        wait_until("the worker killed itself", lambda: self._process.poll() is not None, within)
        assert self._process.returncode == -signal.SIGKILL, self.text()

    def wait_until_started(self, within: timedelta = STARTS_WITHIN) -> None:
        wait_until("the worker started", lambda: "worker.started" in self._said(), within)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, within: timedelta = STARTS_WITHIN) -> int:
        """Its return code, once it has ended."""
        return self._process.wait(within.total_seconds())

    def text(self) -> str:
        """What it wrote so far."""
        return self.output.read_text("utf-8", "replace")

    def _said(self) -> str:
        assert self._process.poll() is None, self.text()
        return self.text()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


Spawn = Callable[[Order], WorkerProcess]


@pytest.fixture
def spawn_worker(tmp_path: Path) -> Iterator[Spawn]:
    """`spawn_worker(order)` starts a worker process; all are killed at the end."""
    processes: list[WorkerProcess] = []

    def spawn(order: Order) -> WorkerProcess:
        processes.append(WorkerProcess(order, tmp_path / f"worker-{len(processes)}.log"))
        return processes[-1]

    yield spawn
    for process in processes:
        process.close()


def killer(point: str, nth: int) -> Callable[[str], None]:
    """A hook that kills this process with SIGKILL when `point` is reached for the `nth` time."""
    left = nth

    def reached(here: str) -> None:
        nonlocal left
        if here == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


async def work(order: Order) -> None:
    """Run the worker until SIGTERM has drained it."""
    module, _, name = order.app.partition(":")
    app: App = getattr(importlib.import_module(module), name)()
    settings = Settings(
        database_url=order.database_url,
        kafka=order.kafka(),
        roles=frozenset(order.roles),  # type: ignore[arg-type]  # a test names roles that there are
        lease_for=timedelta(seconds=order.lease_s),
        http_port=0,
    )
    worker = Worker(app, settings, reached=killer(order.dies_at, order.nth))
    drained: list[asyncio.Task[None]] = []
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: drained.append(asyncio.ensure_future(worker.drain()))
    )
    await worker.start()
    await worker.run_until_stopped()


def main(arguments: Sequence[str]) -> None:
    given = json.loads(arguments[0])
    order = Order(**{**given, "topics": tuple(given["topics"]), "roles": tuple(given["roles"])})
    bound_client_logs()
    asyncio.run(work(order))


if __name__ == "__main__":
    main(sys.argv[1:])
