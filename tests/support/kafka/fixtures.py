"""Brokers for tests: one for the session, three with passwords for who asks, fresh topics for each test.

Where no broker can run, a test that needs one is skipped with the reason; with REQUIRE_KAFKA=1 it fails.
"""

import os
from collections.abc import Iterator

import pytest

from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.jars import POM, KafkaUnavailable, fetch_jars, what_is_missing
from tests.support.kafka.topics import STANDARD, Topics, create_topics_of, grant


def pytest_report_header() -> str:
    """Which broker this run is on."""
    if missing := what_is_missing():
        return f"broker: NONE, {missing}; tests that need one are {'failed' if _is_required() else 'skipped'}"
    version = POM.read_text("utf-8").split("kafka_2.13</artifactId>")[1].split("<version>")[1].split("<")[0]
    return f"broker: Apache Kafka {version}, real, started by the tests"


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One broker, no passwords, for the whole session: break nothing on it."""
    _need_a_broker()
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def own_kafka() -> Iterator[KafkaCluster]:
    """One broker for one test, to kill, pause and restart."""
    _need_a_broker()
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three brokers with passwords and permissions, standard topics granted; leave all three running."""
    _need_a_broker()
    with KafkaCluster(brokers=3, passwords=True, heap_mb=400) as cluster:
        create_topics_of(cluster, STANDARD)
        grant(cluster, STANDARD)
        yield cluster


@pytest.fixture
def topics(kafka: KafkaCluster) -> Topics:
    """Events, deliveries and dead letters under names of this test alone, on the session's broker."""
    fresh = Topics.fresh()
    create_topics_of(kafka, fresh)
    return fresh


def _is_required() -> bool:
    return os.environ.get("REQUIRE_KAFKA", "") not in ("", "0")


def _need_a_broker() -> None:
    try:
        fetch_jars()
    except KafkaUnavailable as error:
        if _is_required():
            pytest.fail(f"REQUIRE_KAFKA is set and there is no broker: {error}")
        pytest.skip(f"no broker: {error}")
