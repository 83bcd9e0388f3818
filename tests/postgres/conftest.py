"""A small pool on a database of the test."""

from collections.abc import AsyncIterator

import pytest

from workers.postgres.database import Database


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """At most two connections."""
    database = await Database.open(database_url, max_size=2)
    yield database
    await database.close()
