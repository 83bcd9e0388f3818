"""A worker in a process of its own, with the turns role alone: `python -m tests.support.turn_worker JSON`.

It does what an ordinary worker does, except that it may kill or stop itself at one of the points that the engine
reports. Its agent does what the text of the event says; a file is how a test tells it to go on.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from tests.support.desk import allow
from tests.support.events import an_agent
from tests.support.waiting import eventually
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.kafka.settings import KafkaSettings
from workers.memory.limits import Conversations
from workers.roles.settings import Settings
from workers.roles.worker import Worker

NOBODY_LISTENS = "127.0.0.1:9"


@dataclass(frozen=True)
class Orders:
    """What the process is to do. `at_point`: at its `nth` time, `signal` itself. Lease in seconds."""

    url: str
    folder: str
    lease_for: float = 2.0
    slots: int = 64
    at_point: str = ""
    nth: int = 1
    signal: int = signal.SIGKILL


PR_SET_PDEATHSIG = 1


class AtPoint:
    """Given as `reached`."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._left = orders.nth

    def __call__(self, point: str) -> None:
        if point == self._orders.at_point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._orders.signal)


def obeying(folder: Path):  # type: ignore[no-untyped-def]
    """The agent: leaves a line for every start, then does what the event's text says."""

    async def runs(turn: Turn) -> None:
        with (folder / "started").open("a") as file:
            file.write(f"{turn.event.event_id} {os.getpid()}\n")
        match turn.event.text.split():
            case ["kill"]:
                os.kill(os.getpid(), signal.SIGKILL)
            case ["block"]:
                time.sleep(60)  # noqa: ASYNC251  # it is to block
            case ["wait", name]:
                await turn.reply("before")
                await until(folder / name)
                await turn.reply("after")
            case ["note", name]:
                await until(folder / name)
                await turn.set_note("key", "text")
            case ["step", name]:
                await until(folder / name)
                await turn.step("late", lambda: "done")
            case ["end", name]:
                await until(folder / name)
            case ["linger"]:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    (folder / f"cancelled-{turn.event.event_id}").touch()
                    raise
            case _:
                await turn.reply(f"answer to {turn.event.text}")

    return runs


async def until(file: Path) -> None:
    await eventually(f"{file.name} is there", file.exists, timedelta(minutes=5))


async def main(orders: Orders, agent: Agent | None = None) -> None:
    agent = agent or an_agent(runs=obeying(Path(orders.folder)), conversation=True)
    app = App("turns", agents=[agent], channels=[LabChannel()], conversations=Conversations(allow))
    settings = Settings(
        database_url=orders.url,
        kafka=KafkaSettings(bootstrap=NOBODY_LISTENS),
        roles=frozenset({"turns"}),
        slots=orders.slots,
        lease_for=timedelta(seconds=orders.lease_for),
        http_port=0,
    )
    worker = Worker(app, settings, reached=AtPoint(orders))
    await worker.start()
    await worker.run_until_stopped()


class Process:
    """A worker process as the test holds it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    async def ended(self, within: timedelta = timedelta(seconds=60)) -> int:
        """The exit code; negative is a signal."""
        return await asyncio.wait_for(self._process.wait(), within.total_seconds())

    async def works(self, holds: Callable[[], Awaitable[bool]], within: timedelta) -> None:
        """Wait until its work shows; fails with its log, and at once when it has ended."""

        async def shows() -> bool:
            assert self._process.returncode is None, f"it ended with {self._process.returncode}"
            return await holds()

        try:
            await eventually("it works", shows, within)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error

    @property
    def is_stopped(self) -> bool:
        return "T (stopped)" in Path(f"/proc/{self.pid}/status").read_text()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


@asynccontextmanager
async def a_worker(
    orders: Orders, *command: str, module: str = "tests.support.turn_worker"
) -> AsyncIterator[Process]:
    """The process, started; killed at the end. `command` goes before the interpreter's; `module` is what it runs."""
    log = Path(orders.folder) / f"log-{time.monotonic_ns()}"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            sys.executable,
            "-m",
            module,
            json.dumps(asdict(orders)),
            stdout=output,
            stderr=output,
        )
    try:
        yield Process(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def follow_parent() -> None:
    """End when the parent does: it may be a command that stands between the test and this process."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    follow_parent()
    asyncio.run(main(Orders(**json.loads(sys.argv[1]))))
