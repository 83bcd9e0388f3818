"""Faults of ingress: what was signed once was believed for ever."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.api.desk import a_body, signed
from tests.schemas.samples import a_key
from tests.support.events import KEYS, an_agent
from tests.support.kafka.cluster import KafkaCluster
from tests.support.running import Site, a_worker, end_offsets
from tests.support.waiting import eventually
from workers.agents.agent import Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.webhook import WebhookChannel

PATH = "/channels/hook/webhook"
[KEY] = KEYS.signing_keys("hook")


@pytest.mark.kafka
async def test_pb_75_a_signed_request_counts_once_and_only_while_it_is_fresh(
    site: Site, kafka: KafkaCluster
) -> None:
    """coolhand-ruby issue 86, windmill pull 8596: the time was signed and never looked at, a repeat ran again."""
    called: list[str] = []

    async def runs(turn: Turn) -> None:
        called.append(turn.event.event_id)

    agent = an_agent(runs=runs, subscriptions=[Subscription("hook")])
    app = App("tested", agents=[agent], channels=[WebhookChannel("hook", "http://127.0.0.1:9/", KEYS)])
    body, now = a_body(), datetime.now(UTC)
    headers = signed(body, "w1", now - timedelta(seconds=10), KEY)
    async with (
        a_worker(site, app, roles=site.life.settings().roles | {"api"}) as worker,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{worker.http_port}") as http,
    ):

        async def post(body: bytes, headers: dict[str, str]) -> httpx.Response:
            return await http.post(PATH, content=body, headers=headers)

        async def is_ready() -> bool:
            ready = await http.get("/readyz")
            return ready.status_code == 200

        await eventually("it is ready", is_ready)
        accepted = [await post(body, headers)]
        await site.settled(1)
        accepted += [await post(body, headers), await post(body, signed(body, "w1", now, KEY))]
        refused = [
            await post(body, signed(body, "w1", now - timedelta(minutes=6), KEY)),
            await post(body, signed(body, "w1", now - timedelta(days=1), KEY)),
            await post(body, signed(body, "w2", now + timedelta(minutes=10), KEY)),
            await post(body[:-1] + b" ", headers),
            await post(body.replace(b"hello", b"hellp"), headers),
            await post(body, headers | {"webhook-id": "w3"}),
            await post(body, signed(body, "w4", now, a_key("a stranger's"))),
        ]
        duplicates = worker.metrics.events.labels("hook", "duplicate")._value
        await eventually("both copies were recognized", lambda: duplicates.get() == 2)

    assert [answer.status_code for answer in accepted] == [202] * 3
    assert {answer.status_code for answer in refused} == {401}
    assert len({answer.content for answer in refused}) == 1
    assert called == ["w1"]
    assert await site.value("select count(*) from runs") == 1
    assert end_offsets(kafka, site.kafka.events_topic) == 3
