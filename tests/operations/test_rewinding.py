"""Events are read again after the database went back to an earlier state; everything is there once."""

import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.events import an_event
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from tests.support.postgres_fixture import PostgresForTests
from tests.support.running import a_nursery, a_site
from tests.support.waiting import eventually
from workers.kafka.rewind import GroupInUse
from workers.operations.rewinding import carry_out, plan, refuse_rewind
from workers.postgres.database import Database

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMIT = timedelta(days=6)


@pytest.mark.parametrize(
    ("since", "why"),
    [
        (NOW + timedelta(seconds=1), "yet to come"),
        (NOW - LIMIT - timedelta(seconds=1), "too old"),
        (NOW - LIMIT, None),
        (NOW, None),
    ],
)
def test_a_rewind_is_refused_where_it_would_read_what_is_refused(since: datetime, why: str | None) -> None:
    refusal = refuse_rewind(since, NOW, LIMIT)
    assert (refusal is None) if why is None else (refusal is not None and why in refusal[0])


def name_of(url: str) -> str:
    """The database's name; the socket's folder follows as an option."""
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def restore(postgres: PostgresForTests, database_url: str) -> "Callable[[str], None]":
    """Puts the test's database back to a copy that was taken of it."""
    name = name_of(database_url)

    def back_to(copy: str) -> None:
        postgres.drop(name)
        postgres.create(name, copy)

    return back_to


@pytest.mark.kafka
@pytest.mark.rule("EN-38")
async def test_after_a_database_went_back_a_rewind_brings_everything_there_once(
    postgres: PostgresForTests,
    database_url: str,
    restore: Callable[[str], None],
    kafka: KafkaCluster,
    topics: Topics,
    tmp_path: Path,
) -> None:
    name = name_of(database_url)
    copy = f"{name}_copy"
    with a_nursery() as nursery:
        async with a_site(database_url, kafka, topics, nursery, tmp_path) as site:
            since = datetime.now(UTC) - timedelta(minutes=1)
            worker = site.start()
            await worker.serving()
            await site.publish(*(an_event(event_id=f"kept{n}", chat=f"c{n}", text=f"m{n}") for n in range(5)))
            await site.settled(5)
            worker.signal(signal.SIGTERM)
            await eventually("it left", lambda: not worker.alive, timedelta(seconds=30))
            await site.database.close()
            postgres.create(copy, name)

            site.database = await Database.open(database_url, max_size=2)
            worker = site.start()
            await worker.serving()
            await site.publish(*(an_event(event_id=f"lost{n}", chat=f"c{n}", text=f"n{n}") for n in range(5)))
            await site.settled(10)
            with pytest.raises(GroupInUse):
                await plan(site.kafka, since, datetime.now(UTC), LIMIT)
            worker.signal(signal.SIGTERM)
            await eventually("it left", lambda: not worker.alive, timedelta(seconds=30))
            await site.database.close()

            restore(copy)
            postgres.drop(copy)
            site.database = await Database.open(database_url, max_size=2)
            assert await site.value("select count(*) from runs") == 5
            moves = await plan(site.kafka, since, datetime.now(UTC), LIMIT)
            assert sum(move.again for move in moves) == 10
            await carry_out(site.kafka, site.database, moves, since, "ann")

            worker = site.start()
            await site.settled(10)
            assert sorted(note for note in site.notes() if " ran kept" in note) == sorted(
                f"echo ran kept{n}" for n in range(5)
            )
        database = await Database.open(database_url, max_size=1)
        try:
            rows = await database.fetch(
                "select event_id, count(*) as n, min(status) as s from runs group by 1 order by 1"
            )
            assert [(row["event_id"], row["n"], row["s"]) for row in rows] == [
                *((f"kept{n}", 1, "succeeded") for n in range(5)),
                *((f"lost{n}", 1, "succeeded") for n in range(5)),
            ]
            act = await database.fetchrow("select actor, act from audit")
            assert act is not None
            assert (act["actor"], act["act"]) == ("ann", "topics.rewind")
        finally:
            await database.close()
