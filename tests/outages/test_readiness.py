"""Readiness is true to what a worker can do: joined with no partition, slow services, a topic that is not there."""

import asyncio

import pytest
from confluent_kafka.admin import AdminClient

from tests.outages.serving import Site
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka

SLOW, TOO_SLOW = 0.1, 1.5
"""Seconds that each chunk takes, in each direction; a probe waits for one second."""


@pytest.mark.rule("EN-39")
async def test_a_member_without_a_partition_is_ready(site: Site) -> None:
    one_partition, four = site.topics.dead, site.topics.events
    swapped = {"PARLEY_EVENTS_TOPIC": one_partition, "PARLEY_DEAD_TOPIC": four}
    workers = [site.serve("--roles", "intake", **swapped) for _ in range(2)]
    for worker in workers:
        await worker.ready()
    admin, name = AdminClient({"bootstrap.servers": site.kafka.bootstrap}), site.kafka.group("intake")
    group = await asyncio.to_thread(admin.describe_consumer_groups([name])[name].result, 20)
    assert sorted(len(member.assignment.topic_partitions) for member in group.members) == [0, 1]
    assert all(worker.complaints() == set() for worker in workers)


@pytest.mark.rule("EN-39")
async def test_slow_services_slow_everything_and_lose_nothing(site: Site) -> None:
    worker = site.serve()
    await worker.ready()
    before = worker.mark()
    for proxy in site.through.values():
        proxy.forward(SLOW)
    await site.publish(30)
    await site.answered()
    await worker.ready()

    for proxy in site.through.values():
        proxy.forward(TOO_SLOW)
    await site.publish(30)
    await eventually("its probe says so", lambda: "database" in worker.complaints())
    assert worker.asked("/healthz")[0] == 200
    for proxy in site.through.values():
        proxy.forward()
    await worker.ready()
    await site.answered()
    worker.has_stayed_small(before)


@pytest.mark.rule("EN-39")
async def test_an_api_alone_is_not_ready_without_a_broker(site: Site) -> None:
    site.through["kafka"].refuse()
    worker = site.serve("--roles", "api")
    await eventually("it says so", lambda: worker.asked("/readyz")[0] == 503)
    assert worker.complaints() == {"kafka_producer"}
    site.through["kafka"].forward()
    await worker.ready()
    begun = worker.lines()
    site.through["kafka"].refuse()
    await worker.endures(3.0, {"kafka_producer"}, begun)
    site.through["kafka"].forward()
    await worker.ready()


@pytest.mark.rule("EN-39")
@pytest.mark.parametrize("name", ["EVENTS", "DELIVERIES", "DEAD"])
async def test_a_missing_topic_is_named_and_ends_the_start(site: Site, name: str) -> None:
    worker = site.serve(**{f"PARLEY_{name}_TOPIC": "nobody.made.this"})
    assert await asyncio.to_thread(worker.process.wait, 40) == 1
    last = worker.told().strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "nobody.made.this" in last
    assert "Traceback" not in worker.told()
