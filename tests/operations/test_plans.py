"""An operator's act reads about as much as it shows or changes, whatever else the tables hold."""

from uuid import UUID

import pytest

from tests.support.big_tables import BigDatabase, plan_of
from workers.operations.conversations import (
    DELETE_ITEMS,
    DELETE_NOTE_OPERATIONS,
    DELETE_NOTES,
    FIND_LANE_RUNS,
    READ_CONVERSATION,
)
from workers.operations.deliveries import _LIST_DELIVERIES
from workers.operations.runs import LIST_RUNS
from workers.postgres.database import Database

SHOWN = 50
MIDDLE = UUID(int=1 << 127)
LISTS: dict[str, tuple[str, list[object]]] = {
    "runs": (LIST_RUNS, [None, None, None, False, SHOWN]),
    "open runs": (LIST_RUNS, [None, None, None, True, SHOWN]),
    "deliveries": (_LIST_DELIVERIES, [None, None, None, None, SHOWN]),
    "a later page of deliveries": (_LIST_DELIVERIES, [["pending"], "lab", None, MIDDLE, SHOWN]),
}


@pytest.mark.parametrize("name", LISTS)
async def test_the_newest_are_listed_without_reading_the_rest(big_database: BigDatabase, name: str) -> None:
    statement, arguments = LISTS[name]
    database = await Database.open(big_database.url, max_size=1)
    try:
        async with database.transaction() as tx:
            # A list is asked for once in a process, so its plan is made for its arguments.
            plan = await plan_of(tx, statement, *arguments, generic=False)
    finally:
        await database.close()

    assert plan.scanned_whole == []
    assert plan.most_rows <= 2 * SHOWN


@pytest.mark.parametrize(
    "statement",
    [FIND_LANE_RUNS, READ_CONVERSATION, DELETE_ITEMS, DELETE_NOTES, DELETE_NOTE_OPERATIONS],
    ids=["runs", "counts", "items", "notes", "receipts"],
)
async def test_a_conversation_is_deleted_by_its_lane(big_database: BigDatabase, statement: str) -> None:
    database = await Database.open(big_database.url, max_size=1)
    try:
        async with database.acquire() as connection:
            await connection.execute("begin")
            plan = await plan_of(connection, statement, 1, generic=False)
            await connection.execute("rollback")
    finally:
        await database.close()

    assert plan.scanned_whole == []
    assert plan.most_rows <= SHOWN
