"""Migrations run once, whole, and under one transaction-scoped lock, however many replicas start together.

The lock is taken inside the migrating transaction and before the version is read, so a replica that waited
finds the work done. A transaction-scoped lock survives transaction pooling and cannot be left behind.

Workers may go on meanwhile. A migration waits for a table for seconds only, since everybody else waits behind it, and
one that meets a deadlock with them or waits too long begins anew.
"""

import random
import time
from pathlib import Path

import psycopg
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

MIGRATION_LOCK = 0x7061726C6579  # "parley"
_PATIENCE_SECONDS = 60.0


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config


def _connect(url: str) -> Connection:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
    return engine.connect()


def head() -> str:
    """The newest schema version that this code knows."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def known() -> frozenset[str]:
    """Every schema version that this code knows."""
    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def current(url: str) -> str | None:
    """The schema version of the database at `url`, or None where it has no tables; reads only."""
    with _connect(url) as connection:
        connection.execute(text("set transaction read only"))
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(url: str, revision: str = "head") -> str:
    """Bring the database at `url` to `revision` and return the version it then has."""
    return _migrate(url, revision, down=False)


def downgrade(url: str, revision: str) -> str:
    """Take the database at `url` back to `revision` ("base" empties it); loses the data of what is undone."""
    return _migrate(url, revision, down=True)


def _migrate(url: str, revision: str, *, down: bool) -> str:
    """Try until it gets its tables, for a minute."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return _try_to_migrate(url, revision, down=down)
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.1, 0.5))


def _try_to_migrate(url: str, revision: str, *, down: bool) -> str:
    script = ScriptDirectory.from_config(_config())

    def steps(now: object, _context: object) -> object:
        if down:
            return script._downgrade_revs(revision, now)  # type: ignore[arg-type]
        return script._upgrade_revs(revision, now)  # type: ignore[arg-type]

    with (
        _connect(url) as connection,
        EnvironmentContext(_config(), script, fn=steps) as environment,
        connection.begin(),
    ):
        connection.execute(text("set local lock_timeout = '60s'"))
        connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        connection.execute(text("set local lock_timeout = '2s'"))
        environment.configure(connection=connection, transactional_ddl=True)
        environment.run_migrations()
        return environment.get_context().get_current_revision() or "base"
