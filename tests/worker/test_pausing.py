"""A pause holds in every replica and after a restart, and the queue's age goes on growing meanwhile."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.events import an_event
from tests.support.running import Site, counted
from tests.support.waiting import eventually
from workers.operations.pauses import Target, pause, resume

CHANNEL = Target("channel", "lab")


@pytest.mark.rule("EN-50")
async def test_a_pause_holds_in_all_replicas_and_outlives_them(site: Site) -> None:
    replicas = [site.start(), site.start()]
    for replica in replicas:
        await replica.serving()
    await site.publish(an_event(text="before"))
    await site.settled(1)
    await pause(site.database, CHANNEL, "ann")

    async def heard() -> Any:
        return all('"event":"pauses.changed"' in each.life.log.read_text("utf-8") for each in replicas)

    await eventually("both have heard of it", heard)
    await site.publish(*(an_event(text=f"m{n}") for n in range(20)))
    await eventually(
        "all are admitted", lambda: site.value("select count(*) = 21 from runs"), timedelta(seconds=30)
    )
    await replicas[0].kill()
    fresh = site.start()
    await fresh.serving()

    async def old_enough() -> Any:
        return counted(await fresh.scrape(), "parley_queue_oldest_seconds") >= 3

    await eventually("the queue is seen to age", old_enough, timedelta(seconds=30))
    scrape = await fresh.scrape()
    assert counted(scrape, "parley_queue_depth") == 20
    assert counted(scrape, "parley_paused", kind="channel") == 1
    assert site.texts() == ["echo: before"]

    await resume(site.database, CHANNEL, "ann")
    await site.settled(21)
    assert len(site.texts()) == 21
