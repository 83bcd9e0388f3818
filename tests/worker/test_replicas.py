"""Several worker processes on one installation: one run an event and agent, whatever role runs where."""

import random
import statistics
import time
from datetime import timedelta
from typing import Any

import pytest

from tests.support.events import an_event, sealed
from tests.support.kafka.cluster import KafkaCluster
from tests.support.running import Child, Site, counted, end_offsets
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite

QUEUE_GAUGES = ["parley_queue_depth", "parley_unclaimable_runs"]
LOST = 4
TERMINATE_LISTENERS = (
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'parley-hints'"
)
STATES = ["pending", "sending", "uncertain", "unknown"]


@pytest.mark.rule("EN-13", "EN-46")
async def test_ten_copies_over_three_replicas_make_one_run_for_each_of_two_agents(
    make_site: MakeSite,
) -> None:
    agents, copies = ["echo", "again"], 10
    async with make_site(options={"agents": agents}) as site:
        replicas = [site.start(), site.start(), site.start()]
        for replica in replicas:
            await ready(replica)
        events = [an_event(event_id=f"e{n}", text=f"m{n}") for n in range(20)]
        records = [sealed(event) for event in events] * copies
        random.Random(7).shuffle(records)

        await site.publish(*records)
        await site.settled(len(events) * len(agents))

        async def all_seen() -> Any:
            seen = [counted(await each.scrape(), "parley_events_total") for each in replicas]
            return sum(seen) >= len(records) * len(agents)

        await eventually("every copy was seen", all_seen)
        scrapes = [await replica.scrape() for replica in replicas]

        ran = sorted(note for note in site.notes() if " ran " in note)
        assert ran == sorted(f"{agent} ran {event.event_id}" for agent in agents for event in events)
        assert sorted(site.texts()) == sorted(
            f"{agent}: {event.text}" for agent in agents for event in events
        )
        sums: dict[str, Any] = {
            outcome: sum(counted(text, "parley_events_total", outcome=outcome) for text in scrapes)
            for outcome in ("admitted", "duplicate")
        }
        assert sums == {"admitted": 40, "duplicate": 360}
        for agent in agents:
            settled = sum(
                counted(text, "parley_turns_total", agent=agent, outcome="succeeded") for text in scrapes
            )
            steps = sum(counted(text, "parley_steps_total", agent=agent) for text in scrapes)
            assert (settled, steps) == (20, 40)
        assert sum(counted(text, "parley_deliveries_total", outcome="sent") for text in scrapes) == 40
        assert sum(counted(text, "parley_attempts_total", outcome="sent") for text in scrapes) == 40
        assert sum(counted(text, "parley_admission_seconds_count") for text in scrapes) == 40


async def ready(child: Child) -> None:
    async def answers() -> Any:
        try:
            return await child.scrape("/readyz")
        except OSError:
            return None

    await child.serving()
    await eventually(f"{child.life.name} is ready", answers, timedelta(seconds=30))


@pytest.mark.rule("EN-46")
async def test_gauges_of_the_database_say_the_same_on_every_replica(site: Site) -> None:
    replicas = [site.start(roles=("intake",)), site.start(roles=("intake",))]
    for number in range(7):
        await site.publish(an_event(text=f"m{number}"))

    async def depth() -> Any:
        return [counted(await each.scrape(), "parley_queue_depth") for each in replicas] == [7, 7]

    await eventually("both know of seven waiting runs", depth)
    turns = site.start(roles=("turns",))
    await turns.serving()

    async def pending() -> Any:
        scrapes = [await each.scrape() for each in (*replicas, turns)]
        found = [counted(text, "parley_delivery_states", state="pending") for text in scrapes]
        return scrapes if found == [7, 7, 7] else None

    scrapes: Any = await eventually("all three know of seven pending deliveries", pending)
    for name in QUEUE_GAUGES:
        assert [counted(text, name) for text in scrapes] == [0, 0, 0]
    for state in STATES[1:]:
        assert [counted(text, "parley_delivery_states", state=state) for text in scrapes] == [0, 0, 0]
    assert all(counted(text, "parley_oldest_pending_seconds") > 0 for text in scrapes)


@pytest.mark.rule("EN-43")
@pytest.mark.parametrize(("listens", "median_s"), [(True, 0.4), (False, 1.0)])
async def test_split_roles_answer_quickly_and_without_hints_too(
    make_site: MakeSite, listens: bool, median_s: float
) -> None:
    async with make_site(listens=listens) as site:
        children = [site.start(roles=(role,)) for role in ("intake", "turns", "delivery")]
        for child in children:
            await ready(child)
        waits: list[float] = []
        for number in range(12):
            started = time.perf_counter()
            await site.publish(an_event(text=f"m{number}"))
            await site.answered(number + 1)
            waits.append(time.perf_counter() - started)
        for number in range(12, 12 + LOST * listens):
            await site.rows(TERMINATE_LISTENERS)
            await site.publish(an_event(text=f"m{number}"))
            await site.answered(number + 1, within=timedelta(seconds=6))
        await site.settled(12 + LOST * listens)
        assert all(child.alive for child in children)

    assert statistics.median(waits) < median_s, waits


@pytest.mark.rule("EN-30")
async def test_a_reply_that_was_never_published_is_found_within_five_seconds(
    site: Site, kafka: KafkaCluster
) -> None:
    intake, delivery = site.start(roles=("intake",)), site.start(roles=("delivery",))
    turns = site.start(roles=("turns",), dies_at="journal.committed#2")
    for child in (intake, delivery):
        await ready(child)
    await site.publish(an_event(text="hi"))
    await turns.died()

    await eventually("the reply", lambda: site.texts() == ["echo: hi"])
    waited = await site.value("select extract(epoch from first_sent_at - created_at)::float8 from deliveries")
    site.start(roles=("turns",))
    await site.settled(1)

    assert waited < 5
    assert site.texts() == ["echo: hi"]
    assert end_offsets(kafka, site.kafka.deliveries_topic) == 0
