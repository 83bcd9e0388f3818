"""Read a topic's events again from a moment on: after the database went back to an earlier state, and only then.

Reservations make it safe. What the database still knows is recognized and does not run again; what it lost is admitted
like new. Its replies go out under new keys, so a channel that had got them before gets them once more.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from workers.kafka.rewind import Move, plan_rewind, rewind
from workers.kafka.settings import KafkaSettings
from workers.operations import audit
from workers.operations.errors import ActRefused
from workers.postgres.database import Database

INTAKE = "intake"


def refuse_rewind(since: datetime, now: datetime, event_age_limit: timedelta) -> tuple[str, str] | None:
    """Why events cannot be read again from `since` on, and what to do instead; None where they can."""
    if since > now:
        return (
            f"{since.isoformat()} is yet to come",
            "give a time before the moment to which the database went back",
        )
    if now - since > event_age_limit:
        return (
            f"events from before {(now - event_age_limit).isoformat()} would be refused as too old",
            "give a later time, or raise PARLEY_EVENT_AGE_LIMIT for that long",
        )
    return None


async def plan(
    settings: KafkaSettings, since: datetime, now: datetime, event_age_limit: timedelta
) -> list[Move]:
    """What a rewind of the events would do, by partition. Raises ActRefused, GroupInUse and Kafka's failures."""
    if refusal := refuse_rewind(since, now, event_age_limit):
        raise ActRefused("the events cannot be read again", *refusal)
    return await plan_rewind(settings, settings.events_topic, settings.group(INTAKE), since)


async def carry_out(
    settings: KafkaSettings, database: Database, moves: Sequence[Move], since: datetime, actor: str
) -> None:
    """Do what was planned; the audit row stands before the place moves. Raises GroupInUse."""
    detail = {
        "since": since.isoformat(),
        "group": settings.group(INTAKE),
        "partitions": {str(move.partition): [move.committed, move.target] for move in moves if move.again},
    }
    async with database.transaction() as tx:
        await audit.record(tx, actor, "topics.rewind", settings.events_topic, detail)
    await rewind(settings, settings.events_topic, settings.group(INTAKE), moves)
