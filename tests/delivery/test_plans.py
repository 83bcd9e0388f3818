"""The hot queries of delivery stay on their indexes with 200,000 open deliveries."""

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.support.delivery import Desk, a_conversation
from workers.delivery.policy import HEAD_HOLD
from workers.postgres.sql import load


async def two_hundred_thousand_open(desk: Desk) -> None:
    """A quarter on one address, the rest on 50,000 others."""
    conversation = await a_conversation(desk.db)
    await desk.db.execute(
        "insert into addresses (channel, account, address) select 'lab', 'a', 'c' || n from generate_series(0, 50000) n"
    )
    await desk.db.execute(
        "insert into deliveries (id, key, reply_key, run_id, lane_id, agent, recalled, address_id, channel, account,"
        " body, due_at)"
        " select gen_random_uuid(), 'k' || n, 'k' || n, $1, $2, 'echo', false,"
        "        (select min(id) from addresses) + case when n % 4 = 0 then 0 else n % 50001 end, 'lab', 'a', 'hi',"
        "        now() - interval '1 minute'"
        "   from generate_series(1, 200000) n",
        conversation.run_id,
        conversation.lane_id,
    )
    await desk.db.execute("vacuum analyze deliveries")
    await desk.db.execute("analyze addresses")


async def plan(desk: Desk, name: str, *arguments: Any) -> dict[str, Any]:
    statement = f"explain (analyze, timing off, format json) {load('workers.delivery', name)}"
    row = await desk.db.fetchrow(statement, *arguments)
    assert row is not None
    tree: dict[str, Any] = json.loads(row[0])[0]["Plan"]
    return tree


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def rows_read(tree: dict[str, Any], relation: str) -> float:
    """How many rows of `relation` the plan touched, those it threw away included."""
    return sum(
        float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(tree)
        if node.get("Relation Name") == relation and node["Node Type"] != "ModifyTable"
    )


def is_scanned_whole(tree: dict[str, Any], relation: str) -> bool:
    return any(
        node["Node Type"] == "Seq Scan" and node.get("Relation Name") == relation for node in nodes(tree)
    )


@pytest.mark.rule("EN-31", "EN-44")
async def test_claim_and_overdue_read_a_few_rows_an_address_at_200_000_open_deliveries(desk: Desk) -> None:
    await two_hundred_thousand_open(desk)
    ids = (await desk.addresses())[:64]

    lock = await plan(desk, "lock_addresses", ids, ["lab"], desk.session_id)
    claim = await plan(desk, "claim_heads", uuid.uuid4(), ids, HEAD_HOLD)
    walk = await plan(desk, "walk_overdue", -1, 500, timedelta(seconds=2), ["lab"], HEAD_HOLD)

    assert not is_scanned_whole(lock, "addresses")
    assert not is_scanned_whole(claim, "deliveries")
    assert rows_read(claim, "deliveries") < 64 * 8
    assert not is_scanned_whole(walk, "deliveries")
    assert rows_read(walk, "deliveries") < 500 * 8
