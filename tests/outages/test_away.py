"""Kafka or Postgres is away when a worker starts and later: refused, silent, again and again."""

import asyncio
import os
from typing import Final

import pytest

from tests.outages.proxy import Proxy
from tests.outages.serving import Site

pytestmark = pytest.mark.kafka

AWAY_SECONDS: Final = 3.0
MINUTES_BACKLOG, MINUTES_PADDING = 4000, 15_000
MISSING: Final = {
    "kafka": {"kafka_intake", "kafka_delivery"},
    "postgres": {"database", "lease"},
}
"""What a running worker misses, by what is away."""


def break_off(proxy: Proxy, how: str) -> None:
    """`refused`: connections are cut and new ones refused; `silent`: nothing answers, old or new."""
    if how == "refused":
        proxy.refuse()
    else:
        proxy.swallow()


@pytest.mark.rule("EN-39")
@pytest.mark.parametrize("how", ["refused", pytest.param("silent", marks=pytest.mark.long)])
@pytest.mark.parametrize("service", ["kafka", "postgres"])
async def test_a_worker_that_starts_without_a_service_waits_for_it(
    site: Site, service: str, how: str
) -> None:
    await site.publish(10)
    break_off(site.through[service], how)
    worker = site.serve()
    # The deliveries are read under a session, and a session needs the database.
    missing = MISSING[service] | ({"kafka_delivery"} if service == "postgres" else set())
    await worker.endures(AWAY_SECONDS, missing)
    await site.publish(10)
    site.through[service].forward()
    await worker.ready()
    await site.publish(10)
    await site.answered()


@pytest.mark.rule("EN-39", "EN-42")
@pytest.mark.parametrize("how", ["refused", pytest.param("silent", marks=pytest.mark.long)])
@pytest.mark.parametrize("service", ["kafka", "postgres"])
async def test_a_service_that_goes_away_later_is_waited_for(site: Site, service: str, how: str) -> None:
    worker = site.serve()
    await worker.ready()
    await site.publish(20)
    begun = worker.lines()
    break_off(site.through[service], how)
    await site.publish(20)
    await worker.endures(AWAY_SECONDS, MISSING[service], begun)
    await site.publish(20)
    site.through[service].forward()
    await worker.ready()
    await site.publish(20)
    await site.answered()


@pytest.mark.rule("EN-39", "EN-42")
async def test_services_that_come_and_go_again_and_again_lose_and_repeat_nothing(site: Site) -> None:
    worker = site.serve()
    await worker.ready()
    before = worker.mark()
    for number in range(12):
        proxy = site.through["kafka" if number % 2 else "postgres"]
        proxy.refuse()
        await site.publish(5)
        await asyncio.sleep(0.1 * (number % 4))
        proxy.forward()
        await asyncio.sleep(0.1 * (number % 3))
    await worker.ready()
    await site.answered()
    worker.has_stayed_small(before, lines=300)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.rule("EN-39", "EN-6")
@pytest.mark.parametrize("service", ["kafka", "postgres"])
async def test_minutes_without_a_service_cost_few_lines_and_no_memory(site: Site, service: str) -> None:
    """Two minutes; `PARLEY_TEST_SCALE` scales them. Behind an absent Postgres lies a backlog of 60 MB."""
    worker = site.serve()
    await worker.ready()
    await site.publish(500, padding=MINUTES_PADDING)
    await site.answered()
    begun = worker.lines()
    site.through[service].refuse()
    await site.publish(MINUTES_BACKLOG, padding=MINUTES_PADDING)
    await worker.endures(120 * float(os.environ.get("PARLEY_TEST_SCALE", "1")), MISSING[service], begun)
    site.through[service].forward()
    await worker.ready()
    await site.answered()
