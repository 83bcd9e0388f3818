"""A desk for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.support.delivery import Desk, a_desk


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    """A lab channel that recognizes keys for ever."""
    async with a_desk(database_url) as desk:
        yield desk
