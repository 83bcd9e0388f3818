"""A cluster of one or three brokers: formatted, started, broken on purpose, and cleared away.

With `passwords=True` clients log in by SCRAM-SHA-512 and may do only what was granted; controllers and
brokers speak plaintext among themselves on listeners of their own.
"""

import base64
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.kafka.broker import LOOPBACK, Broker, BrokerFailed, free_ports, java_command
from tests.support.kafka.jars import fetch_jars
from tests.support.waiting import NeverHappened, wait_until

ANSWER_WITHIN = timedelta(seconds=60)
FORMAT_SECONDS = 120
MECHANISM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the cluster."""

    name: str
    password: str


ADMIN = Account("admin", "admin-secret")
ADAPTER = Account("adapter", "adapter-secret")
WORKER = Account("worker", "worker-secret")


class KafkaCluster:
    """Brokers that live as long as this object; use it as a context manager."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        passwords: bool = False,
        heap_mb: int = 512,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are broker settings on top of ours, by Kafka's own names."""
        self.passwords = passwords
        self._folder = Path(tempfile.mkdtemp(prefix="parley-kafka-"))
        self._jars = fetch_jars()
        self._heap_mb = heap_mb
        self._settings = dict(settings or {})
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-spawner")
        self._ports = [free_ports(3) for _ in range(brokers)]
        self.brokers = [self._lay_out(node) for node in range(1, brokers + 1)]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """`host:port,host:port` for clients."""
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        """Format the storage, start every broker, and wait until the cluster answers with all of them."""
        self._format()
        for broker in self.brokers:
            broker.launch()
        self.wait_until_whole()

    def restart(self, broker: Broker) -> None:
        """Start a killed or stopped broker again, on its port and data, and wait until it is a member."""
        broker.launch()
        self.wait_until_whole()

    def close(self) -> None:
        """Kill every broker and remove its data."""
        for broker in self.brokers:
            broker.kill()
        self._spawner.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait_until_whole(self) -> None:
        """Until every running broker is listed by the cluster."""
        running = [broker for broker in self.brokers if broker.is_running()]
        if not running:
            raise BrokerFailed(f"no broker runs\n{self.brokers[0].end_of_log()}")
        for broker in running:
            broker.wait_for_port()
        admin = AdminClient(self.for_librdkafka(ADMIN) | {"log_level": 0})
        expected = {broker.node_id for broker in running}
        try:
            wait_until("every broker is a member", lambda: expected <= _members(admin), ANSWER_WITHIN)
        except NeverHappened as error:
            logs = "\n".join(broker.end_of_log() for broker in running)
            raise BrokerFailed(f"{error}\n{logs}") from error

    def for_librdkafka(self, account: Account = ADMIN) -> dict[str, str | int | float | bool]:
        """Connection settings for confluent-kafka clients."""
        connection: dict[str, str | int | float | bool] = {"bootstrap.servers": self.bootstrap}
        if self.passwords:
            connection |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": MECHANISM}
            connection |= {"sasl.username": account.name, "sasl.password": account.password}
        return connection

    def for_aiokafka(self, account: Account = ADMIN) -> dict[str, str]:
        """Connection settings for aiokafka clients."""
        connection = {"bootstrap_servers": self.bootstrap}
        if self.passwords:
            connection |= {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": MECHANISM}
            connection |= {"sasl_plain_username": account.name, "sasl_plain_password": account.password}
        return connection

    def _lay_out(self, node_id: int) -> Broker:
        folder = self._folder / f"node-{node_id}"
        folder.mkdir()
        broker = Broker(
            node_id=node_id,
            folder=folder,
            jars=self._jars,
            client_port=self._ports[node_id - 1][0],
            heap_mb=self._heap_mb,
            spawner=self._spawner,
        )
        lines = "".join(f"{name}={value}\n" for name, value in self._settings_of(broker).items())
        broker.properties_file.write_text(lines, "utf-8")
        return broker

    def _settings_of(self, broker: Broker) -> dict[str, str]:
        client, internal, controller = self._ports[broker.node_id - 1]
        replicas = str(len(self._ports))
        in_sync = str(min(2, len(self._ports)))
        listeners = f"CLIENT://{LOOPBACK}:{client},INTERNAL://{LOOPBACK}:{internal}"
        protocol = "SASL_PLAINTEXT" if self.passwords else "PLAINTEXT"
        voters = (f"{n}@{LOOPBACK}:{ports[2]}" for n, ports in enumerate(self._ports, start=1))
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(broker.node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(broker.folder / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "unclean.leader.election.enable": "false",
            # a killed broker may register again only when its old registration has run out
            "broker.heartbeat.interval.ms": "1000",
            "broker.session.timeout.ms": "4000",
            "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
        }
        if self.passwords:
            settings |= {
                "sasl.enabled.mechanisms": MECHANISM,
                "listener.name.client.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN.name};User:ANONYMOUS",
            }
        return settings | self._settings

    def _format(self) -> None:
        cluster_id = _new_cluster_id()
        users: list[str] = []
        if self.passwords:
            for account in (ADMIN, ADAPTER, WORKER):
                users += ["-S", f"{MECHANISM}=[name={account.name},password={account.password}]"]
        running = []
        for broker in self.brokers:
            arguments = ["format", "-t", cluster_id, "-c", str(broker.properties_file), *users]
            command = java_command(self._jars, 128, "kafka.tools.StorageTool", *arguments)
            output = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            running.append((broker, output))
        for broker, process in running:
            said, _ = process.communicate(timeout=FORMAT_SECONDS)
            if process.returncode:
                raise BrokerFailed(f"formatting the storage of broker {broker.node_id}: {said[-2000:]}")


def _members(admin: AdminClient) -> set[int]:
    try:
        return set(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return set()


def _new_cluster_id() -> str:
    """A random id as Kafka spells it; one with a leading dash would read as an option."""
    return "P" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
