"""Moves a group's place in a topic back to a moment, while nobody reads as that group; never forward."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from schemas.errors import Rejected
from workers.kafka.broker import require_topics
from workers.kafka.errors import BrokerAway, TopicForbidden
from workers.kafka.settings import KafkaSettings

_PATIENCE_SECONDS = 10.0
_MEMBERS_FIRST = (CommitFailedError, IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError)


class GroupInUse(Rejected):
    """Somebody reads as `group` (`members` of them, None where the broker only refused): its place cannot be moved."""

    def __init__(self, group: str, members: int | None) -> None:
        count = "" if members is None else f"{members} of them "
        super().__init__(
            f"group {group} has members {count}that read now: stop them (the intake role) and try again; one that was "
            "killed counts until its session runs out"
        )
        self.group, self.members = group, members


@dataclass(frozen=True, slots=True)
class Move:
    """What a rewind does to one partition; a group that never committed begins at the start."""

    partition: int
    committed: int | None
    target: int
    end: int

    @property
    def again(self) -> int:
        """How many records are read again."""
        return 0 if self.committed is None else self.committed - self.target


async def plan_rewind(settings: KafkaSettings, topic: str, group: str, since: datetime) -> list[Move]:
    """Where each partition of `topic` would begin for `group`, to read everything since `since` again.

    Where nothing came since then, the place stays. Raises BrokerAway, BrokerLoginFailed, TopicMissing, TopicForbidden,
    GroupInUse.
    """
    states = await require_topics(settings, (topic,))
    places = [TopicPartition(topic, number) for number in range(states[topic].partitions)]
    async with _reached(settings, topic, group):
        return await _plan(settings, group, places, since)


@retry(
    retry=retry_if_exception(lambda error: isinstance(error, KafkaError) and error.retriable),
    wait=wait_fixed(0.2),
    stop=stop_after_delay(_PATIENCE_SECONDS),
    reraise=True,
)
async def _plan(
    settings: KafkaSettings, group: str, places: Sequence[TopicPartition], since: datetime
) -> list[Move]:
    """Reads only; a coordinator that is being made or moved answers after a moment."""
    if members := await _members(settings, group):
        raise GroupInUse(group, members)
    async with _client(settings, group) as consumer:
        consumer.assign(places)
        moment = int(since.timestamp() * 1000)
        found = await consumer.offsets_for_times(dict.fromkeys(places, moment))
        ends = await consumer.end_offsets(places)
        moves = []
        for place in places:
            committed = await consumer.committed(place)
            later = found.get(place)
            target = ends[place] if later is None else later.offset
            if committed is not None:
                target = min(committed, target)
            moves.append(Move(place.partition, committed, target, ends[place]))
    return moves


async def rewind(settings: KafkaSettings, topic: str, group: str, moves: Sequence[Move]) -> None:
    """Move the group's place as planned; the broker itself refuses while it has members. Raises as planning does."""
    async with _reached(settings, topic, group), _client(settings, group) as consumer:
        wanted = {TopicPartition(topic, move.partition): move.target for move in moves if move.again}
        consumer.assign(list(wanted))
        if wanted:
            await consumer.commit(wanted)


async def _members(settings: KafkaSettings, group: str) -> int:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.servers, client_id="parley", **settings.client_options()
    )
    await admin.start()
    try:
        [described] = await admin.describe_consumer_groups([group])
        return sum(len(found["members"]) for found in described.to_object()["groups"])
    finally:
        await admin.close()


@asynccontextmanager
async def _reached(settings: KafkaSettings, topic: str, group: str) -> AsyncIterator[None]:
    """The client's errors as ours."""
    try:
        yield
    except _MEMBERS_FIRST:
        raise GroupInUse(group, None) from None
    except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
        raise TopicForbidden(topic, f"group {group} may not be moved in it") from error
    except (KafkaError, TimeoutError, OSError) as error:
        raise BrokerAway(settings.bootstrap, f"{type(error).__name__}: {error}") from error


@asynccontextmanager
async def _client(settings: KafkaSettings, group: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.servers,
        client_id="parley",
        group_id=group,
        enable_auto_commit=False,
        request_timeout_ms=int(settings.request_timeout.total_seconds() * 1000),
        **settings.client_options(),
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()
