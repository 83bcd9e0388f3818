"""One installation a test, with worker processes forked from one nursery a session."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from tests.support.running import Nursery, Site, a_nursery, a_site

MakeSite = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with a_nursery() as nursery:
        yield nursery


@pytest.fixture
def make_site(
    database_url: str, kafka: KafkaCluster, topics: Topics, nursery: Nursery, tmp_path: Path
) -> MakeSite:
    """`make_site(**life)`: the test's installation, its workers living like that."""

    def make(**life: Any) -> AbstractAsyncContextManager[Site]:
        return a_site(database_url, kafka, topics, nursery, tmp_path, **life)

    return make


@pytest.fixture
async def site(make_site: MakeSite) -> AsyncIterator[Site]:
    async with make_site() as site:
        yield site
