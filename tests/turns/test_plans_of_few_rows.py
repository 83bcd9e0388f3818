"""Rows are found by value in tables of few rows too: such a table may be mostly dead rows that an old snapshot keeps.

A plan that walks a small table is cheap by its statistics, is kept by the connection, and reads every dead row again.
"""

import json
import uuid
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.support.big_tables import plan_of
from workers.admission import store as admission
from workers.postgres.database import Database
from workers.turns import store

SMALL: Final = {"lanes", "turns", "ready", "runs"}
LANES: Final = list(range(1, 51))
RUNS: Final = [uuid.uuid4() for _ in LANES]
SESSION: Final = uuid.UUID(int=7)
NONE: Final = [None] * len(LANES)
ROWS: Final = json.dumps(
    [
        {
            "id": str(uuid.uuid4()),
            "lane_id": lane_id,
            "generation": 0,
            "agent": "echo",
            "channel": "lab",
            "account": "a",
            "event_id": str(lane_id),
            "event": "\\x7b7d",
        }
        for lane_id in LANES
    ]
)

STATEMENTS: Final[dict[str, tuple[str, list[Any]]]] = {
    "insert_runs": (admission.INSERT_RUNS, [ROWS]),
    "mark_ready": (admission.MARK_READY, [LANES]),
    "lock_ready_lanes": (store.LOCK_READY_LANES, [LANES, SESSION]),
    "read_heads": (store.READ_HEADS, [LANES, timedelta(seconds=2)]),
    "take_lanes": (store.TAKE_LANES, [LANES, RUNS, NONE, NONE, SESSION]),
    "lock_owned": (store.LOCK_OWNED, [LANES, RUNS, [1] * len(LANES)]),
    "settle_runs": (store.SETTLE_RUNS, [LANES, RUNS, ["succeeded"] * len(LANES), NONE, NONE]),
    "mark_next_ready": (store.MARK_NEXT_READY, [LANES, timedelta(seconds=2)]),
    "requeue_lanes": (store.REQUEUE_LANES, [LANES]),
    "release_turns": (
        store.RELEASE_TURNS,
        [
            LANES,
            RUNS,
            ["queued"] * len(LANES),
            [timedelta(0)] * len(LANES),
            *[[0] * len(LANES)] * 3,
            NONE,
        ],
    ),
    "drop_ready": (store.DROP_READY, [LANES]),
    "postpone_ready": (store.POSTPONE_READY, [LANES, NONE, [timedelta(seconds=1)] * len(LANES)]),
}

FILL: Final = """
    with made as (
        insert into lanes (key, kind, next_position)
        select sha256(n::text::bytea), 'conversation', 2 from generate_series(1, 60) n returning id
    ),
    queued as (
        insert into runs (id, lane_id, generation, position, agent, channel, account, event_id, event)
        select gen_random_uuid(), id, 0, 1, 'echo', 'lab', 'a', id::text, '{}' from made
    )
    insert into ready (lane_id, agent, account, due_at) select id, 'echo', 'lab/a', parley_now() from made
"""


@pytest.mark.rule("EN-44")
@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_statement_of_a_turn_walks_a_table_of_few_rows(
    database_url: str, name: str, analyzed: bool
) -> None:
    statement, arguments = STATEMENTS[name]
    database = await Database.open(database_url, max_size=1)
    try:
        await database.execute(FILL)
        if analyzed:
            await database.execute("analyze lanes, turns, ready, runs")
        async with database.transaction() as tx:
            plan = await plan_of(tx, statement, *arguments, generic=True)
    finally:
        await database.close()

    walked = [
        (node["Node Type"], node["Relation Name"])
        for node in plan.nodes
        if node.get("Relation Name") in SMALL and "Scan" in node["Node Type"] and "Index Cond" not in node
    ]
    assert walked == []
