"""A sender in a process of its own that kills itself at one point: `python -m ... URL LEDGER CAPABILITY POINT`.

With POINT "" it sends until nothing is left. The lab's ledger is a file, since the far end outlives its senders.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import orjson

from tests.support.delivery import a_desk
from workers.channels.lab import LabChannel, Received
from workers.channels.port import Capability, Outcome, Outgoing


class FileLedger:
    """One JSON line a message, appended in one write; each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: list[Received] = []
        self._read_bytes = 0
        path.touch()

    def add(self, message: Received) -> None:
        line = [message.key, message.account, message.address, message.text, message.at.isoformat()]
        with self._path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")

    def messages(self) -> Sequence[Received]:
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            fresh = file.read()
        for line in fresh.splitlines():
            key, account, address, text, at = orjson.loads(line)
            self._seen.append(Received(key, account, address, text, datetime.fromisoformat(at)))
        self._read_bytes += len(fresh)
        return tuple(self._seen)


class DyingChannel(LabChannel):
    """Dies before or behind the far end's acceptance, where the point says so."""

    point = ""

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        die_at("before request", self.point)
        outcome = await super().send(outgoing, timeout)
        die_at("accepted, not answered", self.point)
        return outcome


def die_at(here: str, point: str) -> None:
    if here == point:
        os.kill(os.getpid(), signal.SIGKILL)


def a_channel(ledger: Path, capability: Capability, point: str = "") -> DyingChannel:
    channel = DyingChannel(capability=capability, ledger=FileLedger(ledger))
    channel.point = point
    return channel


async def main(url: str, ledger: str, capability: str, point: str) -> None:
    channel = a_channel(Path(ledger), Capability(capability), point)
    async with a_desk(url, channel, reached=lambda here: die_at(here, point)) as desk:
        await desk.send()
        await desk.reconciler.run_once()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
