"""An intake over a real database whose dead letters go to a real broker."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.events import KEYS, an_agent
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from workers.admission.service import Admission
from workers.agents.agent import Agent
from workers.channels.lab import LabChannel
from workers.channels.port import Channel
from workers.intake.authorizing import Authorizer
from workers.intake.dead_letters import DeadLetters
from workers.intake.service import Intake
from workers.kafka import KafkaSettings, RecordProducer
from workers.kafka.reader import read_topic
from workers.kafka.record import Record
from workers.memory.limits import Conversations
from workers.postgres.database import Database
from workers.telemetry.metrics import Metrics


def settings_for(cluster: KafkaCluster, topics: Topics) -> KafkaSettings:
    """Quick group time-outs and a group of this test alone."""
    base = KafkaSettings.embedded(cluster.bootstrap).with_topics(
        events=topics.events, deliveries=topics.deliveries, dead=topics.dead
    )
    return replace(base, group_prefix=f"g{uuid.uuid4().hex[:8]}", commit_every=timedelta(milliseconds=200))


@pytest.fixture
def settings(kafka: KafkaCluster, topics: Topics) -> KafkaSettings:
    """The session's broker and the topics of this test."""
    return settings_for(kafka, topics)


@dataclass
class Letter:
    """A dead letter as an operator finds it."""

    key: str
    reason: str
    value: bytes | None
    headers: Mapping[str, bytes]


@dataclass
class Desk:
    """What a test needs to take records in and to look."""

    settings: KafkaSettings
    database: Database
    producer: RecordProducer
    metrics: Metrics
    intake: Intake
    acknowledged: list[Record] = field(default_factory=list)

    async def take(self, *records: Record) -> None:
        """One batch."""
        await self.intake.handle(records, self.acknowledge)

    async def retry(self) -> None:
        """Ask the policy again."""
        await self.intake.retry_parked(self.acknowledge)

    def acknowledge(self, records: Iterable[Record]) -> None:
        self.acknowledged += [record for record in records if record not in self.acknowledged]

    def offsets(self) -> list[int]:
        """Of what was acknowledged, in rising order."""
        return sorted(record.offset for record in self.acknowledged)

    async def letters(self) -> list[Letter]:
        """All dead letters there are."""
        return [
            Letter(
                (record.key or b"").decode(),
                dict(record.headers)["parley-reason"].decode(),
                record.value or None,
                dict(record.headers),
            )
            async for record in read_topic(self.settings, self.settings.dead_topic)
        ]

    async def runs(self) -> list[tuple[str, str]]:
        """Agent and event id of each run, in the order of admission."""
        rows = await self.database.fetch("select agent, event_id from runs order by admitted_at, id")
        return [(row["agent"], row["event_id"]) for row in rows]

    async def rows(self) -> int:
        """Rows that admission could have written."""
        rows = await self.database.fetch(
            "select (select count(*) from reservations) + (select count(*) from runs) + (select count(*) from lanes)"
        )
        return int(rows[0][0])

    def counted(self, outcome: str) -> float:
        """Events of the lab channel with this outcome."""
        return float(self.metrics.events.labels("lab", outcome)._value.get())


@asynccontextmanager
async def a_desk(
    url: str,
    settings: KafkaSettings,
    *,
    agents: Iterable[Agent] = (),
    channels: Iterable[Channel] = (),
    conversations: Conversations | None = None,
    policy_timeout: timedelta = timedelta(seconds=5),
    **options: Any,
) -> AsyncIterator[Desk]:
    """An intake of an unbound agent on the lab channel, unless other agents and channels are given."""
    database = await Database.open(url, max_size=6)
    metrics = Metrics()
    agents = list(agents) or [an_agent()]
    channels = list(channels) or [LabChannel(keys=KEYS)]
    async with RecordProducer(settings) as producer:
        intake = Intake(
            {agent.name: agent for agent in agents},
            {channel.name: channel for channel in channels},
            Admission(database),
            Authorizer(conversations, metrics, policy_timeout),
            DeadLetters(producer, settings.dead_topic, metrics),
            metrics,
            **{"event_age_limit": timedelta(days=6), **options},
        )
        yield Desk(settings, database, producer, metrics, intake)
    await database.close()


@pytest.fixture
async def desk(database_url: str, settings: KafkaSettings) -> AsyncIterator[Desk]:
    """One unbound agent on the lab channel."""
    async with a_desk(database_url, settings) as desk:
        yield desk


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def forward(self, by: timedelta) -> None:
        self.seconds += by.total_seconds()
