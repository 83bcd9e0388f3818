"""One scenario's installation: topics, a database and a receiver of its own, three workers, and events that go on."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.checker.evidence import Evidence
from tests.checker.reading import read
from tests.replicas.fleet import Fleet, Worker
from tests.replicas.publisher import Publisher
from tests.replicas.services import Services
from tests.support.kafka.topics import Topics, create_topics_of
from tests.support.postgres_fixture import TEMPLATE
from tests.support.waiting import NeverHappened, wait_until

WORKERS: Final = 3
PARTITIONS: Final = 6
EVENTS_A_SECOND: Final = 30.0
LEASE: Final = timedelta(seconds=5)
QUIET: Final = timedelta(seconds=1.5)
SETTLED_WITHIN: Final = timedelta(seconds=60)
GIVEN_UP: Final = timedelta(seconds=15)
"""Longer than a dead worker's partitions stay with it."""

UNSETTLED = """
select (select count(*) from runs where finished_at is null)
       + (select count(*) from deliveries where finished_at is null)
"""
ACTIVITY = """
select pid, pg_blocking_pids(pid), application_name, state, wait_event, clock_timestamp() - xact_start,
       clock_timestamp() - state_change, left(query, 120)
  from pg_stat_activity
 where datname = current_database()
 order by xact_start
"""
BUSIEST = """
select split_part(s.worker, ':', 2)::integer
  from worker_sessions s
  left join lateral (select count(*) as n from turns t join runs r on r.id = t.run_id
                      where t.session_id = s.id and r.event_id like %s
                        and t.claimed_at < clock_timestamp() - interval '200 ms') owned on true
  left join lateral (select count(*) as n from deliveries d
                      where d.session_id = s.id and d.state = 'sending'
                        and d.claimed_at < clock_timestamp() - interval '200 ms') sending on true
 where s.dead_at is null and s.ended_at is null and owned.n >= %s and sending.n >= %s
 order by owned.n + sending.n desc
 limit 1
"""


class Still:
    """Says whether what `look` gives has stood still for a while; `last` is what it gave."""

    def __init__(self, look: Callable[[], object], period: timedelta) -> None:
        self._look = look
        self._seconds = period.total_seconds()
        self._since = time.monotonic()
        self.last: object = None

    def __call__(self) -> bool:
        if (now := self._look()) != self.last:
            self.last, self._since = now, time.monotonic()
        return time.monotonic() - self._since > self._seconds


@dataclass(slots=True)
class Stage:
    """`say` reports progress; what the scenario leaves behind is read by `evidence()`."""

    services: Services
    fleet: Fleet
    publisher: Publisher
    database_url: str
    folder: Path
    say: Callable[[str], None]

    def row(self, statement: str, *arguments: object) -> Any:
        """The first row's first column, or None; also where the database is away."""
        try:
            with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5) as connection:
                row = connection.execute(statement.encode(), arguments).fetchone()
        except psycopg.OperationalError:
            return None
        return row[0] if row is not None else None

    def busiest(self, turns: int, sends: int = 0, events: str = "%") -> Worker:
        """Wait for a worker that has had so many turns (of events like that) and sends under way for a while."""
        pid = wait_until(
            f"a worker with {turns} turns and {sends} sends",
            lambda: self.row(BUSIEST, events, turns, sends),
            timedelta(seconds=30),
        )
        return next(worker for worker in self.fleet.workers if worker.pid == pid)

    def wait_for(self, what: str, statement: str, *arguments: object, within: timedelta) -> Any:
        """Until the statement's first column is true."""
        return wait_until(what, lambda: self.row(statement, *arguments), within)

    def settle(self) -> None:
        """Wait until every run has ended, every delivery is final and nothing more comes; says so if it gives up."""
        try:
            wait_until("everything has ended", self._has_ended(), SETTLED_WITHIN)
        except NeverHappened:
            self.say(f"not settled within {SETTLED_WITHIN.total_seconds():g} s")
        log = self.folder / "accepted"
        wait_until("the receiver is quiet", Still(lambda: log.stat().st_size, QUIET), SETTLED_WITHIN)

    def _has_ended(self) -> Callable[[], bool]:
        """All events reserved, or none for so long that the rest are lost: the checker is to name them."""
        reserved = Still(lambda: self.row("select count(distinct event_id) from reservations"), GIVEN_UP)

        def has_ended() -> bool:
            no_more = reserved()
            return (no_more or reserved.last == self.publisher.acknowledged) and self.row(UNSETTLED) == 0

        return has_ended

    def evidence(self) -> Evidence:
        return read(
            self.folder / "published", self.database_url, self.folder / "accepted", self.folder / "lines"
        )


@contextmanager
def a_stage(
    services: Services, tree: Path, name: str, say: Callable[[str], None], seed: int
) -> Iterator[Stage]:
    """Workers of `tree`, ready; nothing is published yet."""
    folder = services.folder / f"{name}-{seed}"
    folder.mkdir()
    topics = Topics.fresh()
    create_topics_of(services.kafka, topics, partitions=PARTITIONS)
    database = f"replicas_{name}".replace("-", "_")
    url = services.postgres.create(database, TEMPLATE)
    (folder / "accepted").touch()
    receiver = subprocess.Popen(
        [sys.executable, "-m", "tests.replicas.receiver", str(folder / "accepted")], stdout=subprocess.PIPE
    )
    assert receiver.stdout is not None
    with receiver.stdout:
        port = int(receiver.stdout.readline())
        fleet = Fleet(tree, folder, _settings(services, topics, url, port, folder))
        publisher = Publisher(
            services.kafka.bootstrap, topics.events, folder / "published", EVENTS_A_SECOND, seed
        )
        try:
            for worker in [fleet.start() for _ in range(WORKERS)]:
                worker.wait_until_ready()
            yield Stage(services, fleet, publisher, url, folder, say)
        except Exception:
            note_activity(url, folder / "activity")
            say(f"what there was is kept in {keep(folder)}")
            raise
        finally:
            fleet.close()
            receiver.kill()
            receiver.wait()
            services.postgres.drop(database)


def note_activity(url: str, path: Path) -> None:
    """What every session of the database does at this moment, and who blocks it."""
    with psycopg.connect(url, autocommit=True) as connection:
        path.write_text("".join(f"{row}\n" for row in connection.execute(ACTIVITY)), "utf-8")


def keep(folder: Path) -> Path:
    """Move the records and logs of a stage to where they outlive the run."""
    return Path(shutil.move(folder, tempfile.mkdtemp(prefix="parley-replicas-")))


def _settings(services: Services, topics: Topics, url: str, port: int, folder: Path) -> dict[str, str]:
    return {
        "PARLEY_DATABASE_URL": url,
        "PARLEY_KAFKA_BOOTSTRAP": services.kafka.bootstrap,
        "PARLEY_EVENTS_TOPIC": topics.events,
        "PARLEY_DELIVERIES_TOPIC": topics.deliveries,
        "PARLEY_DEAD_TOPIC": topics.dead,
        "PARLEY_TOPIC_PARTITIONS": str(PARTITIONS),
        "PARLEY_KAFKA_SESSION_TIMEOUT": "7s",
        "PARLEY_LEASE": f"{LEASE.total_seconds():g}s",
        "PARLEY_GRACE": "10s",
        "REPLICAS_RECEIVER": f"http://127.0.0.1:{port}",
        "REPLICAS_LINES": str(folder / "lines"),
    }
