"""Faults of the end of a process: work that nobody finds for hours, and processes that never end."""

import asyncio
import signal
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from schemas.event import Event
from tests.cases.serving import a_replica
from tests.delivery.crashing_sender import FileLedger
from tests.intake.conftest import settings_for
from tests.intake.publishing import publish
from tests.support.events import an_event
from tests.support.kafka.broker import free_ports
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from tests.support.waiting import wait_until

APP = "tests.cases.served:app"
GRACE_SECONDS = 4
WITHIN = timedelta(seconds=40)
pytestmark = pytest.mark.kafka


@pytest.fixture
def environment(database_url: str, kafka: KafkaCluster, topics: Topics) -> dict[str, str]:
    """Where the replicas of a test work."""
    return {
        "PARLEY_DATABASE_URL": database_url,
        "PARLEY_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "PARLEY_KAFKA_GROUP": f"g{uuid.uuid4().hex[:8]}",
        "PARLEY_EVENTS_TOPIC": topics.events,
        "PARLEY_DELIVERIES_TOPIC": topics.deliveries,
        "PARLEY_DEAD_TOPIC": topics.dead,
        "PARLEY_IDEMPOTENCY_TTL": "9d",
        "PARLEY_LEASE": "2s",
        "PARLEY_GRACE": f"{GRACE_SECONDS}s",
    }


@pytest.fixture
def notes(tmp_path: Path) -> "Notes":
    return Notes(tmp_path / "notes")


class Notes:
    """What the agents of all replicas noted, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def __call__(self) -> list[str]:
        return self._path.read_text("utf-8").splitlines()

    def add(self, word: str) -> None:
        with self._path.open("ab") as notes:
            notes.write(word.encode() + b"\n")


def value(url: str, statement: str) -> Any:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


OPEN = """
select (select count(*) from runs where finished_at is null)
     + (select count(*) from deliveries where finished_at is null)
"""


def test_pb_67_what_a_drain_does_not_finish_is_finished_by_another_within_seconds(
    environment: Mapping[str, str],
    database_url: str,
    kafka: KafkaCluster,
    topics: Topics,
    notes: Notes,
    tmp_path: Path,
) -> None:
    """procrastinate issue 307, graphile/worker issue 526: what was interrupted stayed "doing" for hours."""
    settings = settings_for(kafka, topics)

    def say(*texts: str) -> None:
        events: list[Event] = [an_event(text=text) for text in texts]
        asyncio.run(publish(settings, events))

    under_way, backlog = ["short 1", "short 2", "long 1", "long 2"], [f"quick {n}" for n in range(20)]
    with ExitStack() as replicas:
        first = replicas.enter_context(a_replica(tmp_path, environment, "A", APP))
        first.is_ready()
        say(*under_way)
        wait_until("all four run", lambda: len(notes()) == 4, WITHIN)
        other = replicas.enter_context(a_replica(tmp_path, environment, "B", APP))
        other.is_ready()
        asked = time.monotonic()
        first.process.send_signal(signal.SIGTERM)
        first.is_draining()
        notes.add("draining")
        (tmp_path / "draining").touch()
        say(*backlog)
        code = first.process.wait(GRACE_SECONDS + 5)
        took = time.monotonic() - asked
        wait_until(
            "the long ones were taken over",
            lambda: {"B began long 1", "B began long 2"} <= set(notes()),
            timedelta(seconds=5),
        )
        (tmp_path / "go").touch()
        wait_until("all is over", lambda: value(database_url, OPEN) == 0 and len(notes()) == 51, WITHIN)

        assert code == 0, first.said()
        assert took < GRACE_SECONDS + 2
        assert "Traceback" not in first.said()
        assert other.process.poll() is None

    since = notes().index("draining")
    assert [note for note in notes()[since:] if note.startswith("A began")] == []
    assert {"A ended short 1", "A ended short 2"} <= set(notes())
    received = [message.text for message in FileLedger(tmp_path / "ledger").messages()]
    assert sorted(received) == sorted([*under_way, *backlog])
    assert value(database_url, "select max(crashes) from runs") == 0


@pytest.mark.parametrize("variant", ["idle", "no broker", "no postgres", "a deaf agent", "no tables"])
def test_pb_69_a_process_ends_within_its_grace_whatever_is_away(
    variant: str,
    environment: dict[str, str],
    kafka: KafkaCluster,
    topics: Topics,
    notes: Notes,
    tmp_path: Path,
    empty_database_url: str,
) -> None:
    """robinhood/faust issues 484 and 684, faust-streaming/faust issue 324: it stayed "stopping" until it was killed."""
    [nobody] = free_ports(1)
    match variant:
        case "no broker":
            environment["PARLEY_KAFKA_BOOTSTRAP"] = f"127.0.0.1:{nobody}"
        case "no postgres":
            environment["PARLEY_DATABASE_URL"] = f"postgresql://postgres@127.0.0.1:{nobody}/parley"
        case "no tables":
            environment["PARLEY_DATABASE_URL"] = empty_database_url
    with a_replica(tmp_path, environment, "A", APP) as worker:
        if variant == "no tables":
            code = worker.process.wait(WITHIN.total_seconds())
        else:
            worker.has_started()
            if variant in ("idle", "a deaf agent"):
                worker.is_ready()
            if variant == "a deaf agent":
                asyncio.run(publish(settings_for(kafka, topics), [an_event(text="deaf")]))
                wait_until("it runs", lambda: notes() == ["A began deaf"], WITHIN)
            worker.process.send_signal(signal.SIGTERM)
            code = worker.process.wait(GRACE_SECONDS + 5)

        assert code == (1 if variant == "no tables" else 0), worker.said()
        assert "Traceback" not in worker.said()
        assert worker.has_left_nothing()
