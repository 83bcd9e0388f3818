"""Topics and permissions, made and waited for: what is asked for is in force when the function returns."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.kafka.cluster import ADAPTER, WORKER, Account, KafkaCluster
from tests.support.waiting import wait_until

ADMIN_SECONDS = 30
WITHIN = timedelta(seconds=ADMIN_SECONDS)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one installation."""

    events: str
    deliveries: str
    dead: str

    @classmethod
    def fresh(cls) -> "Topics":
        """Names that no other test has."""
        own = f"t{uuid.uuid4().hex[:10]}"
        return cls(f"{own}.channel.events", f"{own}.channel.deliveries", f"{own}.channel.events.dead")

    def names(self) -> tuple[str, str, str]:
        return (self.events, self.deliveries, self.dead)


STANDARD = Topics("channel.events", "channel.deliveries", "channel.events.dead")


def create_topics(
    cluster: KafkaCluster, names: Sequence[str], *, partitions: int = 4, config: dict[str, str] | None = None
) -> None:
    """Create topics on every broker there is, and wait until each partition has a leader."""
    admin = AdminClient(cluster.for_librdkafka())
    replicas = len(cluster.brokers)
    wanted = [NewTopic(name, partitions, replicas, config=config or {}) for name in names]
    for future in admin.create_topics(wanted, operation_timeout=ADMIN_SECONDS).values():
        future.result(ADMIN_SECONDS)
    wait_until("each partition has a leader", lambda: _all_led(admin, names, partitions), WITHIN)


def create_topics_of(cluster: KafkaCluster, topics: Topics, *, partitions: int = 4) -> None:
    """The three topics of one installation; dead letters have one partition."""
    create_topics(cluster, [topics.events, topics.deliveries], partitions=partitions)
    create_topics(cluster, [topics.dead], partitions=1)


def grant(cluster: KafkaCluster, topics: Topics) -> None:
    """What an installation allows: the adapter only writes events, the worker reads them and answers."""
    admin = AdminClient(cluster.for_librdkafka())
    wanted = [
        _allow(ADAPTER, ResourceType.TOPIC, topics.events, AclOperation.WRITE),
        _allow(ADAPTER, ResourceType.TOPIC, topics.events, AclOperation.DESCRIBE),
        _allow(WORKER, ResourceType.TOPIC, topics.events, AclOperation.READ),
        _allow(WORKER, ResourceType.TOPIC, topics.deliveries, AclOperation.READ),
        _allow(WORKER, ResourceType.TOPIC, topics.deliveries, AclOperation.WRITE),
        _allow(WORKER, ResourceType.TOPIC, topics.dead, AclOperation.READ),
        _allow(WORKER, ResourceType.TOPIC, topics.dead, AclOperation.WRITE),
        _allow(WORKER, ResourceType.GROUP, "*", AclOperation.READ),
        *(_allow(WORKER, ResourceType.TOPIC, name, AclOperation.DESCRIBE_CONFIGS) for name in topics.names()),
    ]
    for future in admin.create_acls(wanted, request_timeout=ADMIN_SECONDS).values():
        future.result(ADMIN_SECONDS)
    wait_until("the permissions are in force", lambda: set(wanted) <= _permissions(admin), WITHIN)


def _allow(account: Account, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{account.name}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def _permissions(admin: AdminClient) -> set[AclBinding]:
    anyone: Any = None  # the library reads None as "any", and types it as a name
    everything = AclBindingFilter(
        ResourceType.ANY,
        anyone,
        ResourcePatternType.ANY,
        anyone,
        anyone,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    return set(admin.describe_acls(everything, request_timeout=ADMIN_SECONDS).result(ADMIN_SECONDS))


def _all_led(admin: AdminClient, names: Sequence[str], partitions: int) -> bool:
    known = admin.list_topics(timeout=ADMIN_SECONDS).topics
    return all(
        name in known
        and len(known[name].partitions) == partitions
        and all(partition.leader >= 0 for partition in known[name].partitions.values())
        for name in names
    )
