"""The API served on a port of its own, over a real database and a broker that remembers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx
import pytest

from tests.api.desk import KEY, SECRET, Page, RecordingBroker
from workers.api.parts import ApiParts, Publish
from workers.api.server import ApiServer
from workers.api.service import create_api
from workers.channels.keys import StaticKeys
from workers.channels.web import WebChannel
from workers.channels.webhook import WebhookChannel
from workers.postgres.database import Database
from workers.postgres.hints import Hints
from workers.telemetry.health import Health
from workers.telemetry.metrics import Metrics


@dataclass
class Served:
    """One running API and what it stands on."""

    url: str
    http: httpx.AsyncClient
    broker: RecordingBroker
    health: Health
    metrics: Metrics
    server: ApiServer
    parts: ApiParts
    web: WebChannel | None = None
    database: Database | None = None

    def parts_with(self, publish: Publish) -> ApiParts:
        """The same parts over another publisher."""
        return replace(self.parts, publish=publish)


@pytest.fixture
async def hooks() -> AsyncIterator[Served]:
    """Webhooks, health and metrics; no database."""
    broker, health, metrics = RecordingBroker(), Health(), Metrics()
    channel = WebhookChannel("hook", "http://127.0.0.1:9/", StaticKeys((KEY,)))
    parts = ApiParts("support", {"hook": channel}, broker.publish, None, None, health, metrics)
    server = ApiServer(create_api(parts))
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    async with httpx.AsyncClient(base_url=url, timeout=10) as http:
        yield Served(url, http, broker, health, metrics, server, parts)
    await server.stop()


@pytest.fixture
async def chat(database_url: str) -> AsyncIterator[Served]:
    """The browser chat over a database of its own."""
    broker, health, metrics, hints = RecordingBroker(), Health(), Metrics(), Hints()
    database = await Database.open(database_url, max_size=4)
    web = WebChannel(secret=SECRET, keys=StaticKeys((KEY,)))
    web.bind(database, hints)
    parts = ApiParts("Support", {"web": web}, broker.publish, database, hints, health, metrics)
    server = ApiServer(create_api(parts))
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    async with httpx.AsyncClient(base_url=url, timeout=10) as http:
        yield Served(url, http, broker, health, metrics, server, parts, web, database)
    await server.stop()
    await database.close()


@pytest.fixture
async def page(chat: Served) -> AsyncIterator[Page]:
    """A visitor of the chat who has opened the page."""
    visitor = Page(chat.url)
    await visitor.visit()
    yield visitor
    await visitor.http.aclose()
