"""One short conversation with the cluster: is it there, does it let us in, does it know the topics.

aiokafka folds a refused login into "unable to bootstrap" and says the reason in its log only; here a refused
login is `BrokerLoginFailed` at once, and only an absent broker is waited for.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest

from workers.kafka.errors import BrokerAway, BrokerLoginFailed, TopicForbidden, TopicMissing
from workers.kafka.settings import KafkaSettings

log = logging.getLogger(__name__)

_LOGIN_ERRORS = (
    AuthenticationFailedError,
    IllegalSaslStateError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
_PROBE_MS = 5000
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.2, 5.0
_SAY_EVERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the cluster says of one topic."""

    partitions: int
    replication: int
    error: type[KafkaError] | None


async def describe(
    settings: KafkaSettings, topics: tuple[str, ...], *, create: bool = False
) -> Mapping[str, TopicState]:
    """State of each topic; `create` lets a broker with auto-creation make what is missing.

    Raises BrokerAway, BrokerLoginFailed.
    """
    connection = await _connect(settings)
    try:
        response = await connection.send(MetadataRequest(list(topics), allow_auto_topic_creation=create))
    except (KafkaError, TimeoutError, OSError) as error:
        raise BrokerAway(settings.bootstrap, _say(error)) from error
    finally:
        connection.close()
    said = response.to_object()
    if not said["brokers"]:
        raise BrokerAway(settings.bootstrap, "the cluster names no broker yet")
    states: dict[str, TopicState] = {}
    for entry in said["topics"]:
        found = entry["partitions"]
        states[entry["topic"]] = TopicState(
            partitions=len(found),
            replication=min((len(p["replicas"]) for p in found), default=0),
            error=for_code(entry["error_code"]) if entry["error_code"] else None,
        )
    return states


async def require_topics(settings: KafkaSettings, topics: tuple[str, ...]) -> Mapping[str, TopicState]:
    """State of topics that all exist; raises TopicMissing with every missing name, TopicForbidden."""
    states = await describe(settings, topics)
    for topic, state in states.items():
        if state.error is TopicAuthorizationFailedError:
            raise TopicForbidden(topic, "not allowed to describe it")
    missing = tuple(t for t in topics if t not in states or states[t].partitions == 0)
    if missing:
        raise TopicMissing(missing)
    return states


async def wait_for_topics(settings: KafkaSettings, topics: tuple[str, ...], stopping: asyncio.Event) -> bool:
    """Wait for a broker with backoff and few words; True once the topics are known, False when told to stop.

    Raises BrokerLoginFailed, TopicMissing, TopicForbidden: waiting would not mend those.
    """
    wait, silent_until = _FIRST_WAIT_SECONDS, 0.0
    clock = asyncio.get_running_loop().time
    while not stopping.is_set():
        try:
            await require_topics(settings, topics)
            return True
        except BrokerAway as away:
            if clock() >= silent_until:
                log.warning("waiting for Kafka: %s", away)
                silent_until = clock() + _SAY_EVERY_SECONDS
        try:
            async with asyncio.timeout(wait * random.uniform(0.7, 1.3)):
                await stopping.wait()
        except TimeoutError:
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
    return False


async def _connect(settings: KafkaSettings) -> AIOKafkaConnection:
    reasons: list[str] = []
    for server in settings.servers:
        host, _, port = server.rpartition(":")
        try:
            return await create_conn(
                host.strip("[]"),
                int(port),
                client_id="parley",
                request_timeout_ms=_PROBE_MS,
                **settings.client_options(),
            )
        except _LOGIN_ERRORS as error:
            raise BrokerLoginFailed(
                settings.bootstrap, settings.mechanism, settings.user or "", _say(error)
            ) from None
        except (KafkaError, TimeoutError, OSError) as error:
            reasons.append(f"{server}: {_say(error)}")
    raise BrokerAway(settings.bootstrap, "; ".join(reasons))


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
