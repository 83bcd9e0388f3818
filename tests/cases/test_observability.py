"""Faults of what a system says of itself: metrics that grow with its traffic, secrets in what anyone may read."""

import asyncio
import base64
import random
import re
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest
from aiohttp import web
from psycopg import sql

from schemas.envelope import SealedEvent
from tests.cases.serving import a_replica
from tests.support.events import KEYS, an_agent, an_event, secret_of
from tests.support.kafka.broker import free_ports
from tests.support.running import Site, a_worker
from tests.support.waiting import wait_until
from tests.worker.conftest import MakeSite
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.operations.dead import read_letters
from workers.operations.runs import show_run

QUICK_SCRAPE_SECONDS = 0.2
pytestmark = pytest.mark.kafka


def asked(url: str, body: bytes | None = None) -> bytes:
    """What is answered, whatever the status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=5) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as refusal:
        return refusal.read()


def series_of(metrics: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in metrics.splitlines() if not line.startswith("#")}


async def test_pb_70_metrics_do_not_grow_with_ids_tenants_paths_or_texts_of_errors(site: Site) -> None:
    """prometheus/client_python issue 568, prebid/salesagent issue 1265, starlette-prometheus issue 7: a series each."""

    async def runs(turn: Turn) -> None:
        number = int(turn.event.text.split()[1])
        await turn.reply(turn.event.text)
        if number % 4 == 0:
            raise ValueError(f"distinct error {number}")

    app = App("tested", agents=[an_agent(runs=runs)], channels=[LabChannel(keys=KEYS)])
    chance = random.Random(5)
    published = 0
    async with a_worker(site, app, roles=site.life.settings().roles | {"api"}) as worker:
        base = f"http://127.0.0.1:{worker.http_port}"

        async def traffic(events: int, requests: int) -> set[str]:
            nonlocal published
            numbers = range(published, published + events)
            await site.publish(
                *(an_event(account=f"tenant-{n}", chat=f"chat-{n}", text=f"saying {n}") for n in numbers)
            )
            for _ in range(requests):
                path = f"{base}/path-{chance.getrandbits(40)}/{chance.getrandbits(40)}?id=id-{chance.getrandbits(40)}"
                await asyncio.to_thread(asked, path, chance.choice([None, b"{}"]))
            published += events
            await site.settled(published)
            return series_of((await asyncio.to_thread(asked, f"{base}/metrics")).decode())

        first = await traffic(10, 5)
        middle = await traffic(200, 50)
        last = await traffic(300, 100)
        started = time.perf_counter()
        await asyncio.to_thread(asked, f"{base}/metrics")
        took = time.perf_counter() - started

    assert len(middle - first) < 20, middle - first
    assert len(last - middle) < 5, last - middle
    values = {value for each in last for value in re.findall(r'="([^"]*)"', each)}
    assert [v for v in values if re.search(r"tenant-|chat-|event-|path-|id-|saying|distinct", v)] == []
    assert took < QUICK_SCRAPE_SECONDS


PASSWORD, TOKEN, KEY = "S3cr3t%2Fpw", "tok_abc123", "whs_xyz"
SECRETS = (
    PASSWORD,
    unquote(PASSWORD),
    TOKEN,
    KEY,
    secret_of(KEY),
    base64.b64encode(KEY.encode()).decode()[:8],
)


def secrets_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(secret in line for secret in SECRETS)]


@pytest.fixture
async def provider() -> AsyncIterator[str]:
    """A provider that refuses every request and says again all that it was told; its URL has the token in it."""

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(
            status=401,
            reason=f"token {TOKEN}",
            text=f"unauthorized: {request.path_qs} Authorization: Bearer {TOKEN} {dict(request.headers)}",
        )

    app = web.Application()
    app.router.add_post("/{path:.*}", refuse)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://user:{PASSWORD}@127.0.0.1:{runner.addresses[0][1]}/bot{TOKEN}/send?token={TOKEN}"
    await runner.cleanup()


async def test_pb_73_no_secret_shows_in_logs_reasons_answers_inspection_or_metrics(
    make_site: MakeSite, database_url: str, provider: str
) -> None:
    """MagicStack/asyncpg issue 1152, osparc-simcore issue 8694: the whole URL stood in the log, password and all."""
    with_password = database_url.replace("postgres:@", f"postgres:{PASSWORD}@")
    assert with_password != database_url
    options = {"password": PASSWORD, "token": TOKEN, "key": KEY, "url": provider}
    async with make_site(
        app="tests.cases.leaking:leaking",
        options=options,
        log_level="DEBUG",
        roles=("intake", "turns", "delivery", "api"),
    ) as site:
        worker = site.start(database_url=with_password)
        base = f"http://127.0.0.1:{await worker.serving()}"
        forged = SealedEvent(
            b"k", TOKEN.encode(), [("webhook-signature", KEY.encode()), ("token", TOKEN.encode())]
        )
        await site.publish(an_event(text="say"), an_event(text="crash"), forged)
        await site.settled(2)

        said: dict[str, str] = {}
        runs = await site.rows("select id from runs")
        said["inspection"] = "\n".join(
            [str(asdict(await show_run(site.database, run["id"]))) for run in runs]
        )
        reasons = await site.rows("select reason from runs union all select reason from deliveries")
        said["reasons"] = "\n".join(str(row["reason"]) for row in reasons)
        attempts = await site.rows("select * from delivery_attempts")
        said["attempts"] = "\n".join(map(str, attempts))
        letters = await read_letters(site.kafka)
        said["letters"] = "\n".join(map(str, letters))
        for path in ("/metrics", "/readyz", "/healthz", f"/{TOKEN}?token={TOKEN}"):
            said[path] = (await asyncio.to_thread(asked, f"{base}{path}")).decode()
        said["refusal"] = (
            await asyncio.to_thread(asked, f"{base}/channels/hook/webhook?token={TOKEN}", TOKEN.encode())
        ).decode()
        said["log"] = worker.life.log.read_text("utf-8")

    assert {where: lines for where, text in said.items() if (lines := secrets_in(text))} == {}
    assert "HTTP 401" in said["reasons"]
    assert "RuntimeError" in said["reasons"]
    assert len(letters) == 1
    assert '"event":"turn.failed"' in said["log"]


@pytest.mark.parametrize("trouble", ["wrong port", "no such user", "too many connections"])
def test_pb_73_a_database_that_refuses_is_named_without_the_password(
    trouble: str, database_url: str, tmp_path: Path
) -> None:
    """MagicStack/asyncpg issue 1152, at the connection itself: its parameters were printed when it failed."""
    [nobody] = free_ports(1)
    parts = psycopg.conninfo.conninfo_to_dict(database_url)
    role = f"limited_{parts['dbname']}"
    url: dict[str, Any] = {
        "wrong port": f"postgresql://app:{PASSWORD}@127.0.0.1:{nobody}/parley",
        "no such user": f"postgresql://nobody:{PASSWORD}@/{parts['dbname']}?host={parts['host']}",
        "too many connections": f"postgresql://{role}:{PASSWORD}@/{parts['dbname']}?host={parts['host']}",
    }
    environment = {
        "PARLEY_DATABASE_URL": url[trouble],
        "PARLEY_KAFKA_BOOTSTRAP": f"127.0.0.1:{nobody}",
        "PARLEY_LOG_LEVEL": "debug",
        "PARLEY_GRACE": "2s",
    }
    named = sql.Identifier(role)
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute(sql.SQL("create role {} login connection limit 0").format(named))
        try:
            with a_replica(tmp_path, environment, "A", "tests.cases.served:app", "turns,delivery") as worker:
                wait_until(
                    "it has met the trouble",
                    lambda: (
                        worker.process.poll() is not None or (not worker.answers() and tells(worker.said()))
                    ),
                )
                if worker.process.poll() is None:
                    asked(f"http://127.0.0.1:{worker.port}/readyz")
                    worker.process.terminate()
                worker.process.wait(10)
                said = worker.said()
        finally:
            server.execute(sql.SQL("drop role {}").format(named))

    assert said
    assert secrets_in(said) == []


def tells(said: str) -> bool:
    """Whether the log names a failure of the database."""
    return bool(
        re.search(
            r"refused|Refused|does not exist|too many connections|TooManyConnections|Authorization", said
        )
    )
