"""Topics are made on purpose: created with their settings by an operator, never by a client's first use."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError, for_code

from schemas.errors import Misconfigured
from workers.kafka.broker import describe, require_topics
from workers.kafka.errors import BrokerAway, TopicForbidden, TopicMissing
from workers.kafka.settings import KafkaSettings

_APPEAR_SECONDS = 10.0
_PROMISES = ("retention.ms", "min.insync.replicas", "unclean.leader.election.enable")


async def create_topics(settings: KafkaSettings, topics: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Create what is missing and wait until it can be used; returns the names that were created.

    Raises BrokerAway, BrokerLoginFailed, TopicForbidden, Misconfigured (the broker's reason).
    """
    wanted = topics or settings.topics
    known = await describe(settings, wanted)
    missing = [name for name in wanted if name not in known or known[name].partitions == 0]
    if not missing:
        return ()
    async with _admin(settings) as admin:
        response = await admin.create_topics([_new_topic(settings, name) for name in missing])
    for name, code, *reason in response.topic_errors:
        failure = for_code(code) if code else None
        if failure is TopicAuthorizationFailedError:
            raise TopicForbidden(name, "not allowed to create it")
        if failure is not None and failure is not TopicAlreadyExistsError:
            raise Misconfigured(
                f"Kafka did not create {name}: {reason[0] if reason and reason[0] else failure.__name__}"
            )
    await _wait_until_known(settings, wanted)
    return tuple(missing)


async def touch_topics(settings: KafkaSettings, topics: tuple[str, ...] | None = None) -> None:
    """Make topics appear on a broker that creates them when asked about them (the embedded mock cluster)."""
    await describe(settings, topics or settings.topics, create=True)
    await _wait_until_known(settings, topics or settings.topics)


@dataclass(frozen=True, slots=True)
class TopicPromises:
    """What the broker promises of a topic; `retention` is None where it keeps records for ever."""

    retention: timedelta | None
    min_insync_replicas: int
    unclean_election: bool


async def promises(settings: KafkaSettings, topic: str) -> TopicPromises:
    """The settings in force for `topic`, the broker's defaults included. Raises Misconfigured, BrokerAway."""
    told: dict[str, str] = {}
    async with _admin(settings) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(_PROMISES))
        responses = await admin.describe_configs([resource])
    for response in responses:
        for code, message, _, _, entries in response.resources:
            if code:
                raise Misconfigured(
                    f"Kafka does not tell the settings of {topic}: {message or for_code(code).__name__}"
                )
            told |= {name: value for name, value, *_ in entries}
    if missing := [name for name in _PROMISES if name not in told]:
        raise Misconfigured(f"Kafka does not tell {', '.join(missing)} of {topic}")
    kept = int(told["retention.ms"])
    return TopicPromises(
        retention=None if kept < 0 else timedelta(milliseconds=kept),
        min_insync_replicas=int(told["min.insync.replicas"]),
        unclean_election=told["unclean.leader.election.enable"] == "true",
    )


async def retention(settings: KafkaSettings, topic: str) -> timedelta | None:
    """How long the broker keeps records of `topic`; None when it keeps them for ever."""
    return (await promises(settings, topic)).retention


def _new_topic(settings: KafkaSettings, name: str) -> NewTopic:
    config = {"retention.ms": str(int(settings.retention.total_seconds() * 1000))}
    if settings.replication >= 3:
        config |= {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    return NewTopic(name, settings.partitions, settings.replication, topic_configs=config)


async def _wait_until_known(settings: KafkaSettings, topics: tuple[str, ...]) -> None:
    async with asyncio.timeout(_APPEAR_SECONDS):
        while True:
            try:
                await require_topics(settings, topics)
                return
            except TopicMissing:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.servers, client_id="parley", **settings.client_options()
    )
    try:
        await admin.start()
        yield admin
    except (KafkaError, TimeoutError, OSError) as error:
        raise BrokerAway(settings.bootstrap, f"{type(error).__name__}: {error}") from error
    finally:
        await admin.close()
