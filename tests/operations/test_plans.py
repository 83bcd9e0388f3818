"""An operator's act reads about as much as it shows or changes, whatever else the tables hold."""

from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from tests.support.big_tables import BigDatabase, Plan, plan_of
from workers.memory.limits import Limits
from workers.operations.conversations import (
    DELETE_ITEMS,
    DELETE_NOTE_OPERATIONS,
    DELETE_NOTES,
    FIND_LANE_RUNS,
    READ_CONVERSATION,
)
from workers.operations.deliveries import _LIST_DELIVERIES
from workers.operations.pruning import MOST_LEFT, tasks
from workers.operations.retention import Retention
from workers.operations.runs import LIST_RUNS
from workers.postgres.database import Connection, Database

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


PRUNED_AT_ONCE = 100
# The expiry of reservations is indexed by block ranges, whose newest is read whole; see the plans of admission.
RETENTION = Retention(conversations=timedelta(days=400))
PRUNING = [task.name for task in tasks(RETENTION) if task.name != "reservations"]


class Explaining:
    """Carries statements out under explain, and keeps the plans."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.plans: list[Plan] = []

    async def fetch(self, statement: str, *arguments: object) -> Any:
        await self._explain(statement, *arguments)
        return await self._connection.fetch(statement, *arguments)

    async def fetchrow(self, statement: str, *arguments: object) -> Any:
        await self._explain(statement, *arguments)
        return await self._connection.fetchrow(statement, *arguments)

    async def execute(self, statement: str, *arguments: object) -> str:
        await self._explain(statement, *arguments)
        return await self._connection.execute(statement, *arguments)

    async def _explain(self, statement: str, *arguments: object) -> None:
        await self._connection.execute("savepoint explained")
        self.plans.append(await plan_of(self._connection, statement, *arguments, generic=True))
        await self._connection.execute("rollback to explained")


@pytest.mark.rule("EN-45")
@pytest.mark.parametrize("name", PRUNING)
async def test_a_batch_of_pruning_reads_about_what_it_removes(big_database: BigDatabase, name: str) -> None:
    pruning = tasks(RETENTION, PRUNED_AT_ONCE, limits=Limits(max_stored_items=2))
    [task] = [each for each in pruning if each.name == name]
    database = await Database.open(big_database.url, max_size=1)
    try:
        async with database.acquire() as connection:
            await connection.execute("begin")
            # Two years on, and everything has ended: ids are such that all of them are old.
            await connection.execute(
                "create or replace function parley_now() returns timestamptz language sql stable parallel safe as"
                " 'select now() + interval ''200 years'' * 40'"
            )
            await connection.execute("delete from reservations where id <= $1", 2 * PRUNED_AT_ONCE)
            explaining = Explaining(connection)
            await task.step(cast(Connection, explaining), task.start)
            await connection.execute("rollback")
    finally:
        await database.close()

    for plan in explaining.plans:
        assert plan.scanned_whole == []
        assert plan.most_rows <= (2 * MOST_LEFT if name == "addresses" else 20 * PRUNED_AT_ONCE)
