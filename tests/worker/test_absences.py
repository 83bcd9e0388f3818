"""A whole worker while Postgres and the broker are away: at its start, later, together, and again and again."""

import asyncio
import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from migrations import runner
from tests.support.events import an_event
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics, create_topics_of
from tests.support.postgres_fixture import PostgresForTests
from tests.support.running import Child, Nursery, a_site
from tests.support.waiting import eventually

SOON: Final = timedelta(seconds=60)
AWAY_SECONDS: Final = 5.0
MOST_LINES_A_SECOND: Final = 20
GROWTH_BYTES: Final = 60 * 2**20


@pytest.fixture
def own_postgres() -> Iterator[PostgresForTests]:
    folder = Path(tempfile.mkdtemp(prefix="parley-pg-"))
    server = PostgresForTests(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


def asked(port: int, path: str) -> tuple[int, dict[str, bool]]:
    """Status and answer of a probe."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


def resident_bytes(worker: Child) -> int:
    return int(Path(f"/proc/{worker.pid}/statm").read_text("ascii").split()[1]) * 4096


async def quiet(worker: Child, port: int) -> dict[str, bool]:
    """While something is away: it lives, says no to readiness, and few lines; the answer of its readiness."""
    before = len(worker.life.log.read_bytes().splitlines())
    await asyncio.sleep(AWAY_SECONDS)
    said = len(worker.life.log.read_bytes().splitlines()) - before
    assert said < MOST_LINES_A_SECOND * AWAY_SECONDS, worker.end_of_log()
    assert asked(port, "/healthz")[0] == 200
    status, answer = asked(port, "/readyz")
    assert status == 503
    return answer


@pytest.mark.kafka
@pytest.mark.rule("EN-39")
async def test_a_worker_waits_for_what_is_away_and_goes_on_without_a_restart(
    own_kafka: KafkaCluster, own_postgres: PostgresForTests, nursery: Nursery, tmp_path: Path
) -> None:
    url, topics = own_postgres.create("absences"), Topics.fresh()
    await asyncio.to_thread(runner.upgrade, url)
    create_topics_of(own_kafka, topics)
    [broker] = own_kafka.brokers
    texts: list[str] = []
    async with a_site(url, own_kafka, topics, nursery, tmp_path) as site:

        async def publish(count: int) -> None:
            fresh = [f"m{len(texts) + number}" for number in range(count)]
            texts.extend(fresh)
            await site.publish(*(an_event(text=text, chat=text) for text in fresh))

        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(own_postgres.kill_at_once)
        worker = site.start()
        port = await worker.serving()
        answer = await quiet(worker, port)
        assert (answer["database"], answer["kafka_intake"], answer["lease"]) == (False, False, False)

        await asyncio.to_thread(own_postgres.start_again)
        answer = await quiet(worker, port)
        assert (answer["database"], answer["kafka_intake"]) == (True, False)

        await asyncio.to_thread(own_kafka.restart, broker)
        await eventually("it is ready", lambda: asked(port, "/readyz")[0] == 200, SOON)
        await publish(20)
        await site.answered(20, SOON)
        at_work = resident_bytes(worker)

        for _ in range(2):
            await asyncio.to_thread(own_postgres.kill_at_once)
            await publish(20)
            answer = await quiet(worker, port)
            assert (answer["database"], answer["kafka_intake"]) == (False, True)
            await asyncio.to_thread(own_postgres.start_again)

            await site.answered(len(texts), SOON)
            await asyncio.to_thread(broker.kill)
            await eventually("it says so", lambda: asked(port, "/readyz")[0] == 503, SOON)
            answer = await quiet(worker, port)
            assert (answer["database"], answer["kafka_intake"]) == (True, False)
            await asyncio.to_thread(own_kafka.restart, broker)
            await publish(20)
            await eventually("it is ready", lambda: asked(port, "/readyz")[0] == 200, SOON)

        await site.settled(len(texts), SOON)
        assert sorted(site.texts()) == sorted(f"echo: {text}" for text in texts)
        assert worker.alive
        assert resident_bytes(worker) - at_work < GROWTH_BYTES
