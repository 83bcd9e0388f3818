"""Connections that fell silent stay so for ever, while new ones work: what a firewall that forgot them does."""

import asyncio
import time

import pytest

from tests.outages.serving import Site
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka


@pytest.mark.long
@pytest.mark.rule("EN-39", "EN-42")
async def test_connections_to_postgres_that_never_answer_again_are_replaced(site: Site) -> None:
    worker = site.serve()
    await worker.ready()
    await site.publish(20)
    await site.answered()
    before = worker.mark()
    site.through["postgres"].swallow()
    site.through["postgres"].forward()
    await site.publish(20)
    await eventually("it is not ready", lambda: worker.asked("/readyz")[0] == 503)
    await worker.ready()
    await site.answered()
    worker.has_stayed_small(before)


@pytest.mark.rule("EN-39")
async def test_connections_to_kafka_that_never_answer_again_are_replaced(site: Site) -> None:
    worker = site.serve()
    await worker.ready()
    await site.publish(20)
    await site.answered()
    before = worker.mark()
    site.through["kafka"].swallow()
    since = time.monotonic()
    site.through["kafka"].forward()
    await site.publish(20)
    await site.answered()
    await worker.ready()
    assert time.monotonic() - since < 45
    worker.has_stayed_small(before)


@pytest.mark.rule("EN-39")
async def test_probes_answer_in_their_time_while_everything_is_silent(site: Site) -> None:
    worker = site.serve()
    await worker.ready()
    before = worker.mark()
    for proxy in site.through.values():
        proxy.swallow()
    for _ in range(8):
        since = time.monotonic()
        status, answer = await asyncio.to_thread(worker.asked, "/readyz")
        assert time.monotonic() - since < 2.5
        assert status == 503
        assert not answer["database"]
        assert (await asyncio.to_thread(worker.asked, "/healthz"))[0] == 200
    for proxy in site.through.values():
        proxy.forward()
    await worker.ready()
    await site.publish(5)
    await site.answered()
    worker.has_stayed_small(before)
