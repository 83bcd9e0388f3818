"""Faults of deduplication: a memory that ends with the last retry, and retries that nobody reads."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.intake.conftest import a_desk, settings_for
from tests.support.clock import shift_clock
from tests.support.events import a_record, an_event, sealed
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from workers.admission.store import delete_expired_reservations
from workers.postgres.database import Database
from workers.roles.settings import MIN_IDEMPOTENCY_TTL, Settings


@pytest.mark.kafka
async def test_pb_19_every_retry_of_a_reservations_life_is_recognized_and_a_later_one_is_too_old(
    database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    """vercel/chat pull 667: the memory of what was seen lasted as long as the last retry, and ended just before it."""
    settings = settings_for(kafka, topics)
    lifetime = Settings(database_url, settings).idempotency_ttl
    age_limit = Settings(database_url, settings).event_age_limit
    retries = [timedelta(0), timedelta(seconds=60), timedelta(seconds=300), timedelta(hours=24), age_limit]
    event, now = an_event(message_id="s2"), datetime.now(UTC)
    async with a_desk(database_url, settings, event_age_limit=age_limit) as desk:
        await desk.take(a_record(sealed(event, now=now)))
        passed = timedelta(0)
        for after in retries:
            await shift_clock(desk.database, after - passed)
            passed = after
            await expire(desk.database)
            await desk.take(a_record(sealed(event)))
        await desk.database.execute("update runs set status = 'succeeded', finished_at = parley_now()")
        await shift_clock(desk.database, lifetime - passed + timedelta(seconds=1))
        await expire(desk.database)
        left = await desk.database.fetch("select from reservations")
        old = sealed(event, now=now - lifetime - timedelta(seconds=1))
        await desk.take(a_record(old))

        assert len(await desk.runs()) == 1
        assert desk.counted("duplicate") == len(retries)
        assert len(left) == 0
        assert [letter.reason for letter in await desk.letters()] == ["too_old"]
    assert age_limit <= lifetime
    assert lifetime > settings.retention + timedelta(days=1)
    assert lifetime > MIN_IDEMPOTENCY_TTL > max(retries[:-1])


async def expire(database: Database) -> None:
    """What a pruning does with reservations."""
    async with database.transaction() as tx:
        await delete_expired_reservations(tx, 1000)
