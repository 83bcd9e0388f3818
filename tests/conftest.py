"""What every test can ask for: the rules matrix, a real broker, a real database."""

from collections.abc import Iterator

import pytest

from workers.turns import session

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
