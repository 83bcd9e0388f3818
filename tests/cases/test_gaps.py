"""Faults of acknowledgement: an offset was committed past a record that nobody had finished with."""

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.intake.publishing import committed
from tests.support.events import KEYS, an_agent, an_event
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics, create_topics_of
from tests.support.running import Nursery, a_site, a_worker
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations


@pytest.mark.kafka
async def test_pb_03_the_offset_never_passes_a_record_that_is_not_decided(
    database_url: str, kafka: KafkaCluster, nursery: Nursery, tmp_path: Path
) -> None:
    """faust-streaming/faust issue 312: of five records of a partition the first was open, and the fifth committed."""
    topics, called, lab = Topics.fresh(), list[str](), LabChannel(keys=KEYS)
    create_topics_of(kafka, topics, partitions=1)
    decides = False

    async def authorize(access: Access) -> Allow:
        if access.event.text == "m0" and not decides:
            raise ConnectionError
        return Allow()

    async def runs(turn: Turn) -> None:
        called.append(turn.event.text)
        await turn.reply(turn.event.text)

    agent = an_agent(runs=runs, conversation=True)
    app = App("tested", agents=[agent], channels=[lab], conversations=Conversations(authorize))
    async with a_site(database_url, kafka, topics, nursery, tmp_path) as site:
        settings = replace(site.kafka, partitions=1, group_prefix=f"g{uuid.uuid4().hex[:8]}")
        async with a_worker(site, app, kafka=settings):
            await site.publish(*(an_event(text=f"m{n}") for n in range(5)))
            await eventually("the others are answered", lambda: len(lab.received) == 4)
            before = await committed(settings)
        after = await committed(settings)

        decides = True
        async with a_worker(site, app, kafka=settings):
            await site.settled(5)

            async def to_the_end() -> bool:
                return await committed(settings) == 5

            await eventually("the offset is at the end", to_the_end)

    assert (before, after) == (0, 0)
    assert sorted(called) == [f"m{n}" for n in range(5)]
    assert sorted(lab.received) == [f"m{n}" for n in range(5)]
