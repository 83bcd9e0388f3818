"""Faults of recall, as far as notes and transcripts go: cursors of others, and clocks that read in another zone."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.memory.desk import MemoryDesk, a_desk
from workers.memory import store
from workers.memory.notes import Refused
from workers.memory.policy import cursor_after

EVENINGS = [datetime(2021, 3, 10, 23, 30, tzinfo=UTC), datetime(2021, 3, 11, 0, 30, tzinfo=UTC)]


async def test_pb_41_a_cursor_of_another_conversation_is_refused_as_a_made_up_one_is(
    database_url: str,
) -> None:
    """mastra-ai/mastra issues 21863 and 18911: a cursor of another thread was resolved, and its id disclosed."""
    async with a_desk(database_url) as desk:
        mine, theirs = await desk.a_lane(), await desk.a_lane()
        of_others = cursor_after("secret key", theirs.lane_id, theirs.generation)
        after_reset = cursor_after("secret key", mine.lane_id, mine.generation + 1)

        answers = [await desk.notes.list(mine, cursor) for cursor in (of_others, after_reset, "x" * 40, "é")]

    assert answers == [Refused("unknown_cursor")] * 4


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
async def test_pb_42_what_is_recalled_is_the_same_whatever_the_zone_of_the_session(
    database_url: str, zone: str
) -> None:
    """khora pull 1061, asyncpg issue 1139: times that were naive, or shifted by the zone of the session."""
    async with a_desk(database_url) as desk:
        lane = (await desk.a_lane()).lane_id
        for text, at in zip(("first", "second"), EVENINGS, strict=True):
            await told(desk, lane, text, at)
        recalled: list[list[str | None]] = []
        async with desk.db.transaction() as tx:
            await tx.execute("select set_config('timezone', $1, true)", zone)
            age = await tx.fetchval("select parley_now() - $1::timestamptz", EVENINGS[0])
            for retention in (
                age + timedelta(minutes=1),
                age - timedelta(minutes=1),
                age - timedelta(hours=1),
            ):
                found = await store.read_history(tx, [lane], [0], [""], 20, retention)
                recalled.append([item.text for item in found[lane]])
            everything = await store.read_history(tx, [lane], [0], [""], 20, age + timedelta(days=1))

    assert recalled == [["second", "first"], ["second"], []]
    assert [item.created_at for item in everything[lane]] == EVENINGS[::-1]


async def told(desk: MemoryDesk, lane: int, text: str, at: datetime) -> None:
    name = await desk.an_item(lane, text)
    await desk.db.execute("update items set created_at = $2 where event_id = $1", name, at)
