"""A broker and a Postgres of these tests alone, each behind a proxy; a fresh installation for every test."""

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from migrations import runner
from tests.outages.proxy import Proxy
from tests.outages.serving import Site
from tests.support.kafka.broker import LOOPBACK, free_ports
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.jars import KafkaUnavailable, fetch_jars
from tests.support.kafka.topics import Topics, create_topics_of
from tests.support.postgres_fixture import TEMPLATE, PostgresForTests
from workers.kafka import KafkaSettings, RecordProducer
from workers.postgres.database import Database


@dataclass(frozen=True, slots=True)
class Services:
    """Shared by the tests of this folder; each test leaves both proxies forwarding."""

    kafka: KafkaCluster
    postgres: PostgresForTests
    through: dict[str, Proxy]


@pytest.fixture(scope="session")
def proxied_postgres() -> Iterator[tuple[PostgresForTests, Proxy]]:
    folder = Path(tempfile.mkdtemp(prefix="parley-pg-"))
    server = PostgresForTests(folder)
    runner.upgrade(server.create(TEMPLATE))
    [socket_folder] = parse_qs(urlsplit(server.url("postgres")).query)["host"]
    proxy = Proxy(Path(socket_folder) / ".s.PGSQL.5432")
    try:
        yield server, proxy
    finally:
        proxy.close()
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def proxied_kafka(kafka_is_there: None) -> Iterator[tuple[KafkaCluster, Proxy]]:
    """The broker tells clients of its proxied listener to come through the proxy again."""
    cluster = KafkaCluster()
    [broker] = cluster.brokers
    [port] = free_ports(1)
    proxy = Proxy(port)
    extended = {
        "listeners": f"PROXIED://{LOOPBACK}:{port}",
        "advertised.listeners": f"PROXIED://{LOOPBACK}:{proxy.port}",
        "listener.security.protocol.map": "PROXIED:PLAINTEXT",
    }
    lines = broker.properties_file.read_text("utf-8").splitlines()
    names = [line.partition("=")[0] for line in lines]
    for name, more in extended.items():
        lines[names.index(name)] += f",{more}"
    broker.properties_file.write_text("\n".join(lines) + "\n", "utf-8")
    try:
        with cluster:
            yield cluster, proxy
    finally:
        proxy.close()


@pytest.fixture(scope="session")
def kafka_is_there() -> None:
    try:
        fetch_jars()
    except KafkaUnavailable as error:
        pytest.skip(f"no broker: {error}")


@pytest.fixture
async def site(
    proxied_kafka: tuple[KafkaCluster, Proxy],
    proxied_postgres: tuple[PostgresForTests, Proxy],
    tmp_path: Path,
) -> AsyncIterator[Site]:
    """Topics and a database of this test alone; workers come through the proxies, and find both forwarding."""
    (cluster, before_kafka), (server, before_postgres) = proxied_kafka, proxied_postgres
    name, topics = f"t{uuid.uuid4().hex[:12]}", Topics.fresh()
    create_topics_of(cluster, topics)
    settings = replace(
        KafkaSettings.embedded(cluster.bootstrap).with_topics(
            events=topics.events, deliveries=topics.deliveries, dead=topics.dead
        ),
        group_prefix=name,
        session_timeout=timedelta(seconds=7),
    )
    url = server.create(name, TEMPLATE)
    environment = {
        "PARLEY_DATABASE_URL": f"postgresql://postgres@{LOOPBACK}:{before_postgres.port}/{name}",
        "PARLEY_KAFKA_BOOTSTRAP": f"{LOOPBACK}:{before_kafka.port}",
        "PARLEY_EVENTS_TOPIC": topics.events,
        "PARLEY_DELIVERIES_TOPIC": topics.deliveries,
        "PARLEY_DEAD_TOPIC": topics.dead,
        "PARLEY_TOPIC_PARTITIONS": "4",
        "PARLEY_TOPIC_REPLICATION": "1",
        "PARLEY_KAFKA_GROUP": name,
        "PARLEY_KAFKA_SESSION_TIMEOUT": "7s",
        "PARLEY_LEASE": "3s",
    }
    producer = RecordProducer(settings)
    await producer.start(*topics.names())
    made = Site(
        kafka=settings,
        url=url,
        through={"kafka": before_kafka, "postgres": before_postgres},
        environment=environment,
        folder=tmp_path,
        topics=topics,
        producer=producer,
        database=await Database.open(url, max_size=1, application_name="parley-test"),
    )
    try:
        yield made
    finally:
        before_kafka.forward()
        before_postgres.forward()
        await made.close()
        server.drop(name)
