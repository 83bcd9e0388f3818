"""Faults of outages: a consumer that never recovers, and a health answer that says nothing of it."""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.events import an_event
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics, create_topics_of
from tests.support.running import Child, Nursery, Site, a_site
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite
from workers.turns.session import EXIT_STUCK_LOOP

AWAY_SECONDS = 4.0
MOST_LINES = 100
WITHIN = timedelta(seconds=60)
pytestmark = pytest.mark.kafka


@pytest.fixture
async def own_site(
    database_url: str, own_kafka: KafkaCluster, nursery: Nursery, tmp_path: Path
) -> AsyncIterator[Site]:
    """A site on a broker of its own, to break."""
    topics = Topics.fresh()
    create_topics_of(own_kafka, topics)
    async with a_site(database_url, own_kafka, topics, nursery, tmp_path) as site:
        yield site


def status_of(port: int, path: str, timeout_s: float = 5) -> int:
    """The status of a probe; 0 where nothing answered."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code
    except OSError:
        return 0


async def turns(worker: Child, port: int, path: str, status: int) -> None:
    def holds() -> bool:
        return status_of(port, path) == status

    await eventually(f"{path} of {worker.life.name} is {status}", holds, WITHIN)


@pytest.mark.timeout(240)
async def test_pb_10_71_a_broker_that_was_away_is_joined_again_without_a_restart(
    own_site: Site, own_kafka: KafkaCluster
) -> None:
    """aiokafka issue 44, robinhood/faust issue 596, kafka-python issue 1310: after its broker came back it looped,
    or hung, until it was restarted by hand. aiokafka issue 604: the health answer stayed green all the while."""
    [broker] = own_kafka.brokers
    worker = own_site.start()
    port = await worker.serving()
    await turns(worker, port, "/readyz", 200)

    for number, leave in enumerate((broker.stop, broker.kill)):
        before = len(worker.life.log.read_bytes().splitlines())
        await asyncio.to_thread(leave)
        await turns(worker, port, "/readyz", 503)
        deadline = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < deadline:
            assert (status_of(port, "/healthz"), status_of(port, "/readyz")) == (200, 503)
            await asyncio.sleep(0.5)
        said = len(worker.life.log.read_bytes().splitlines()) - before

        await asyncio.to_thread(own_kafka.restart, broker)
        await turns(worker, port, "/readyz", 200)
        await own_site.publish(an_event(text=f"b{number}"))
        await own_site.answered(number + 1, WITHIN)
        assert said < MOST_LINES, worker.end_of_log()

    await own_site.settled(2)
    assert own_site.texts() == [f"echo: b{number}" for number in range(2)]
    assert worker.alive


async def test_pb_71_a_consumer_that_failed_for_good_ends_its_process(make_site: MakeSite) -> None:
    """tulios/kafkajs issue 1010: the loop was dead, and the probe went on saying that the broker was there."""
    async with make_site(app="tests.cases.dying:denying_the_consumer") as site:
        worker = site.start()
        await worker.died()

        said = worker.life.log.read_text("utf-8")
    assert "worker.part_failed" in said
    assert '"part":"intake"' in said


async def test_pb_71_a_worker_is_not_ready_before_its_first_assignment_and_stays_ready_when_idle(
    own_site: Site, own_kafka: KafkaCluster
) -> None:
    """robinhood/faust issue 286: it was ready before anything was assigned, and idle looked dead."""
    [broker] = own_kafka.brokers
    await asyncio.to_thread(broker.pause)
    worker = own_site.start()
    port = await worker.serving()
    assert (status_of(port, "/healthz"), status_of(port, "/readyz")) == (200, 503)
    broker.resume()
    await turns(worker, port, "/readyz", 200)

    idle_for = 1.5 * own_site.life.session_timeout_seconds
    deadline = time.monotonic() + idle_for
    while time.monotonic() < deadline:
        assert (status_of(port, "/healthz"), status_of(port, "/readyz")) == (200, 200)
        await asyncio.sleep(0.5)
    await own_site.publish(an_event(text="late"))
    await own_site.answered(1)


async def test_pb_71_a_blocked_loop_answers_no_probe_and_is_ended_after_a_lease(make_site: MakeSite) -> None:
    """aiokafka issue 604: the process was reachable while nothing in it moved."""
    async with make_site(app="tests.cases.dying:blocking", lease_seconds=4.0) as site:
        worker = site.start()
        port = await worker.serving()
        await turns(worker, port, "/readyz", 200)
        await site.publish(an_event(text="block"))
        await eventually("it blocks", lambda: site.notes() == ["blocks"])

        assert await asyncio.to_thread(status_of, port, "/healthz", 1.5) == 0
        await worker.died()
        assert "session.loop_stuck" in worker.life.log.read_text("utf-8")
        assert EXIT_STUCK_LOOP != 0
