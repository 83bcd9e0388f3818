from collections.abc import AsyncIterator

import pytest

from tests.operations.desk import OperatorDesk
from workers.postgres.database import Database


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[OperatorDesk]:
    database = await Database.open(database_url, max_size=4)
    yield OperatorDesk(database)
    await database.close()
