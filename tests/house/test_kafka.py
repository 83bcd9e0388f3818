"""The broker that tests stand on does what they lean on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError

from tests.support.kafka.cluster import ADAPTER, WORKER, Account, KafkaCluster
from tests.support.kafka.topics import STANDARD, Topics, create_topics
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


async def publish(cluster: KafkaCluster, topic: str, value: bytes, account: Account | None = None) -> None:
    connection = cluster.for_aiokafka(account) if account else cluster.for_aiokafka()
    async with AIOKafkaProducer(**connection, acks="all", enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, value)


async def first_of(cluster: KafkaCluster, topic: str, account: Account | None = None) -> bytes | None:
    connection = cluster.for_aiokafka(account) if account else cluster.for_aiokafka()
    options = {"group_id": f"readers-of-{topic}", "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, **connection, **options) as consumer:
        value: bytes | None = (await consumer.getone()).value
        return value


async def test_the_session_broker_gives_back_what_it_was_sent(kafka: KafkaCluster, topics: Topics) -> None:
    await publish(kafka, topics.events, b"hello")

    assert await first_of(kafka, topics.events) == b"hello"


async def test_a_killed_broker_comes_back_on_its_port_with_its_data(own_kafka: KafkaCluster) -> None:
    create_topics(own_kafka, ["kept"])
    await publish(own_kafka, "kept", b"before")
    [broker] = own_kafka.brokers
    address = broker.address

    broker.kill()
    assert not broker.is_running()
    own_kafka.restart(broker)

    assert own_kafka.bootstrap == address
    assert await first_of(own_kafka, "kept") == b"before"


async def test_a_paused_broker_goes_on_where_it_stopped(own_kafka: KafkaCluster) -> None:
    create_topics(own_kafka, ["paused"])
    [broker] = own_kafka.brokers

    broker.pause()
    assert broker.is_running()
    broker.resume()

    await publish(own_kafka, "paused", b"after")
    assert await first_of(own_kafka, "paused") == b"after"


async def test_an_adapter_may_write_events_and_a_worker_may_only_read_them(
    kafka_cluster: KafkaCluster,
) -> None:
    await publish(kafka_cluster, STANDARD.events, b"from the adapter", ADAPTER)

    assert await first_of(kafka_cluster, STANDARD.events, WORKER) == b"from the adapter"
    with pytest.raises(TopicAuthorizationFailedError):
        await publish(kafka_cluster, STANDARD.events, b"forged", WORKER)
    with pytest.raises(TopicAuthorizationFailedError):
        await publish(kafka_cluster, STANDARD.deliveries, b"forged", ADAPTER)


def test_a_broker_dies_with_the_process_that_started_it(kafka: KafkaCluster, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from tests.support.kafka.cluster import KafkaCluster\n"
        "with KafkaCluster() as cluster:\n"
        "    print(cluster.brokers[0].pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    surroundings = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=surroundings
    ) as starter:
        assert starter.stdout is not None
        broker = int(starter.stdout.readline())

        starter.kill()

    wait_until("the broker is gone", lambda: not is_alive(broker))


def is_alive(pid: int) -> bool:
    """False for a process that has ended, also while nobody has collected it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
