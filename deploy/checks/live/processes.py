"""Processes of the run: started by name, logged to a file, ended with the run, each by its own id."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

_LEAVE_SECONDS: Final = 45
_ASK_SECONDS: Final = 0.1


class ProcessFailed(Exception):
    """A process ended when it should not have, or never answered; the text has the end of its log."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def started(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running process, told to end at the end of the block, killed where it does not."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=cwd
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def finish(command: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path) -> None:
    """Run to the end. Raises ProcessFailed where it says no."""
    async with started(command, log, environment, cwd) as process:
        if await process.wait():
            raise ProcessFailed(f"{' '.join(command)}: {end_of(log)}")


async def until(what: str, holds: Callable[[], Awaitable[bool]], within: timedelta) -> None:
    """Until `holds` says so. Raises ProcessFailed with `what` when it never does."""
    deadline = time.monotonic() + within.total_seconds()
    while not await holds():
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{what}: not within {within.total_seconds():g} s")
        await asyncio.sleep(_ASK_SECONDS)


def end_of(log: Path, lines: int = 20) -> str:
    """What a process said last."""
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:])


def resident_bytes(pid: int) -> int:
    """The memory of a process that is not swapped out."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
