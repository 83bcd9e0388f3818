"""One life of the demo's worker, seen from the demo: started, listened to, killed or let go."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from schemas.errors import ParleyError
from workers.embedded.demo.plan import Plan

_READY_SECONDS = 40.0
_STOP_SECONDS = 10.0


class WorkerEnded(ParleyError):
    """The worker process ended or said nothing; `log` is the end of what it logged."""

    def __init__(self, log: str) -> None:
        super().__init__(f"the worker process failed:\n{log}")
        self.log = log


class WorkerProcess:
    """`port` serves HTTP once `start` has returned."""

    def __init__(self, plan: Plan, log: Path) -> None:
        self.port = 0
        self._plan = plan
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start and wait until it serves. Raises WorkerEnded."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "workers.embedded.demo.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self._plan.environment()},
                start_new_session=True,
            )
        self.port = int((await self._line())["serving"])

    async def stands_still(self) -> None:
        """Wait until it is where it shall die. Raises WorkerEnded."""
        await self._line()

    async def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> int:
        """End its input, wait for the drain, return its exit code; -9 where it had to be killed."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                return await process.wait()
        except TimeoutError:
            process.kill()
            return await process.wait()

    async def _line(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_READY_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise WorkerEnded(self._log.read_text(encoding="utf-8", errors="replace")[-3000:])
        said: dict[str, Any] = json.loads(line)
        return said
