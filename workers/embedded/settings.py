"""Settings of a worker over embedded services: migrated, with their topics, for development, examples and trials."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from migrations import runner
from workers.embedded.services import embedded_services
from workers.kafka.settings import KafkaSettings
from workers.kafka.topics import touch_topics
from workers.roles.settings import Settings

GRACE: Final = timedelta(seconds=3)


@asynccontextmanager
async def embedded_settings(data: Path | None = None, **changes: Any) -> AsyncIterator[Settings]:
    """Start Postgres and a broker, data in `data` or thrown away at the end; `changes` are fields of Settings.

    Raises EmbeddedNotInstalled.
    """
    async with embedded_services(data) as services:
        await asyncio.to_thread(runner.upgrade, services.database_url)
        kafka = KafkaSettings.embedded(services.bootstrap)
        await touch_topics(kafka)
        fields: dict[str, Any] = {"grace": GRACE, "http_port": 0, "log_json": False}
        yield Settings(services.database_url, kafka, **(fields | changes))
