"""Health, metrics and log lines say what a stranger may see and nothing else."""

import asyncio
import io
import json
import logging
import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
import structlog

from tests.api.conftest import Served
from tests.api.desk import a_body, signed
from workers.api.server import AddressTaken
from workers.telemetry.health import Health
from workers.telemetry.logging import configure


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """Everything the process logs, as JSON lines."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure("DEBUG", json=True, stream=stream)
    yield stream
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()


async def test_readiness_follows_its_probes_and_liveness_only_its_own(hooks: Served) -> None:
    async def database() -> bool:
        return True

    hooks.health.register("database", database)
    hooks.health.register("broker", lambda: False)
    hooks.health.register("loop", lambda: True, "live")

    live, ready = await hooks.http.get("/healthz"), await hooks.http.get("/readyz")

    assert (live.status_code, live.json()) == (200, {"loop": True})
    assert (ready.status_code, ready.json()) == (503, {"database": True, "broker": False, "loop": True})


async def test_a_probe_that_raises_or_hangs_says_no() -> None:
    health = Health(answer_within=timedelta(milliseconds=20))

    def broken() -> bool:
        raise OSError("gone")

    async def hanging() -> bool:
        await asyncio.Event().wait()
        return True

    health.register("broken", broken)
    health.register("hanging", hanging, "live")

    assert await health.ready() == {"broken": False, "hanging": False}
    assert await health.live() == {"hanging": False}


@pytest.mark.rule("EN-46")
async def test_requests_are_counted_by_route_and_strangers_add_no_series(hooks: Served) -> None:
    body = a_body()
    await hooks.http.post("/channels/hook/webhook", content=body, headers=signed(body))
    await hooks.http.get("/nowhere/0")
    before = series(hooks.metrics.render())

    for number in range(1, 20):
        await hooks.http.get(f"/nowhere/{number}?token=t")
        await hooks.http.post(f"/channels/c{number}/webhook", content=b"{}")
    await hooks.http.request("BREW", "/nowhere")

    text = (await hooks.http.get("/metrics")).text
    accepted = 'route="/channels/{channel}/webhook",status_class="2xx"'
    assert f'parley_http_requests_total{{method="POST",{accepted}}} 1.0' in text
    added = series(text.encode()) - before
    assert added <= {
        'method="POST",route="/channels/{channel}/webhook",status_class="4xx"',
        'method="other",route="unmatched",status_class="4xx"',
    }


def series(metrics: bytes) -> set[str]:
    lines = metrics.decode().splitlines()
    return {line[27:].split("}")[0] for line in lines if line.startswith("parley_http_requests_total{")}


@pytest.mark.rule("EN-47")
async def test_no_text_token_or_signature_reaches_the_log(log_lines: io.StringIO, hooks: Served) -> None:
    body = a_body(text="PLANTED text", account="acme")
    headers = signed(body) | {"authorization": "Bearer PLANTED", "cookie": "session=PLANTED"}

    await hooks.http.post("/channels/hook/webhook?token=PLANTED", content=body, headers=headers)
    await hooks.http.post("/channels/hook/webhook", content=body + b" ", headers=headers)
    await hooks.http.get("/PLANTED/bot123456:PLANTED")
    hooks.broker.failure = lambda: RuntimeError("failed on token=PLANTED")
    await hooks.http.post("/channels/hook/webhook", content=body, headers=headers)

    lines = [json.loads(line) for line in log_lines.getvalue().splitlines()]
    lines = [line for line in lines if not line["logger"].startswith(("httpx", "httpcore"))]  # the client's
    written = json.dumps(lines)
    ours = [line for line in lines if line["logger"].startswith("workers.api")]
    assert "PLANTED" not in written
    assert headers["webhook-signature"] not in written
    assert [line["status"] for line in ours if line["event"] == "http.request"] == [202, 401, 404, 500]
    assert {"event.published", "webhook.refused"} <= {line["event"] for line in ours}


async def test_unknown_paths_are_problems_and_nothing_describes_the_code(hooks: Served) -> None:
    answers = [await hooks.http.get(path) for path in ("/x", "/docs", "/openapi.json", "/web/events", "/")]

    assert {answer.status_code for answer in answers} == {404}
    assert {answer.json()["code"] for answer in answers} == {"not_found"}
    assert {answer.headers.get("server") for answer in answers} == {None}


async def test_a_port_that_is_taken_is_said_at_the_start(hooks: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(AddressTaken):
        await hooks.server.start("127.0.0.1", other.getsockname()[1])
