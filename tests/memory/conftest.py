"""A memory desk for each test that asks for one."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.memory.desk import MemoryDesk, a_desk


@pytest_asyncio.fixture
async def desk(database_url: str) -> AsyncIterator[MemoryDesk]:
    async with a_desk(database_url) as ready:
        yield ready
