"""What every test can ask for: the rules matrix, a real broker, a real database."""

from collections.abc import Iterator

import pytest

from workers.turns import session

TAKES_LONGEST = {"bench", "cases", "demo", "kafka", "model", "outages", "rolling", "worker"}

pytest_plugins = [
    "pytester",
    "tests.support.rules",
    "tests.support.kafka.fixtures",
    "tests.support.postgres_fixture",
    "tests.support.big_tables",
    "tests.support.crashing",
]


@pytest.fixture(scope="session", autouse=True)
def _a_stuck_loop_ends_no_test_process() -> Iterator[None]:
    """A worker within a test would end pytest itself where the machine stands still for a lease."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session, "_leave_process", lambda: None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rooms whose files take longest go first: a run ends with quick files, which are shared out to the last."""
    items.sort(key=lambda item: item.path.parent.name not in TAKES_LONGEST)
