"""One large database a session, for guards on plans: a million conversations, a tenth of them with a queued run.

`PARLEY_TEST_SCALE` (1.0 = full size) scales it down; plans are guarded at any scale, times at full scale only.
Guards read it, or change it in a transaction that they roll back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
import pytest

from tests.support.postgres_fixture import PostgresForTests
from workers.postgres.database import Connection

DEFAULT_SCALE = 0.1
NAME = "parley_big"

FILL = """
set session_replication_role = replica;
set synchronous_commit = off;
insert into lanes (key, kind, next_position)
select decode(lpad(to_hex(n), 64, '0'), 'hex'), 'conversation', 2 from generate_series(1, {lanes}) n;
insert into conversations (lane_id, memory_key, channel, account, chat, audience)
select id, 'helper', 'lab', 'account-' || id % 50, 'chat-' || id, 'direct' from lanes;
insert into runs (id, lane_id, generation, position, agent, memory_key, channel, account, event_id, event)
select gen_random_uuid(), id, 0, 1, 'agent-' || id % 10, 'helper', 'lab', 'account-' || id % 50, 'event-' || id, '{{}}'
  from lanes order by id limit {runs};
insert into ready (lane_id, agent, account, due_at)
select lane_id, agent, channel || '/' || account, now() - (random() * interval '1 hour') from runs;
insert into reservations (agent, channel, account, event_id, message_id, payload_hash, hash_version, run_id, lane_id,
                          generation, expires_at)
select agent, channel, account, event_id, 'message-' || lane_id, sha256('x'), 1, id, lane_id, 0,
       now() + interval '7 days'
  from runs;
insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes)
select id, 0, 'input', 'accepted', gen_random_uuid(), 'past-' || id, 'hello', 5 from lanes where id <= 2 * {runs};
insert into addresses (channel, account, address)
select 'lab', 'account-' || id % 50, 'chat-' || id from lanes where id <= {runs};
insert into deliveries (id, key, reply_key, run_id, lane_id, agent, recalled, address_id, channel, account, body)
select gen_random_uuid(), r.id || ':0:0', r.id || ':0:0', r.id, r.lane_id, r.agent, true, a.id, a.channel, a.account,
       'hi'
  from runs r join addresses a on a.id = r.lane_id;
"""


@dataclass(frozen=True, slots=True)
class BigDatabase:
    """Where it is and how much it holds; lanes, addresses and runs have the ids 1 to their number."""

    url: str
    lanes: int
    runs: int

    def lane_key(self, number: int) -> bytes:
        """The key of the lane with this id."""
        return number.to_bytes(32)


def scale() -> float:
    """What `PARLEY_TEST_SCALE` says."""
    return float(os.environ.get("PARLEY_TEST_SCALE") or DEFAULT_SCALE)


@pytest.fixture(scope="session")
def big_database(postgres: PostgresForTests, migrated_template: str) -> Iterator[BigDatabase]:
    """Filled by one insert a table, then analyzed and vacuumed."""
    lanes, runs = int(1_000_000 * scale()), int(100_000 * scale())
    url = postgres.create(NAME, migrated_template)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FILL.format(lanes=lanes, runs=runs))
        connection.execute("vacuum analyze")
    yield BigDatabase(url, lanes, runs)
    postgres.drop(NAME)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a statement was carried out."""

    nodes: tuple[Mapping[str, Any], ...]
    milliseconds: float

    @property
    def scanned_whole(self) -> list[str]:
        """Tables that were read from end to end."""
        return [str(node["Relation Name"]) for node in self.nodes if node["Node Type"] == "Seq Scan"]

    @property
    def most_rows(self) -> int:
        """The most rows that one node read, those that a filter threw away included."""
        return max(
            int(
                (
                    node["Actual Rows"]
                    + node.get("Rows Removed by Filter", 0)
                    + node.get("Rows Removed by Join Filter", 0)
                )
                * node["Actual Loops"]
            )
            for node in self.nodes
        )


async def plan_of(tx: Connection, statement: str, *arguments: object, generic: bool) -> Plan:
    """Run `statement` under explain, with the plan for these arguments or the `generic` one that pools end up with."""
    await tx.execute(f"set local plan_cache_mode = force_{'generic' if generic else 'custom'}_plan")
    [explained] = orjson.loads(
        await tx.fetchval(f"explain (analyze, buffers, format json) {statement}", *arguments)
    )
    return Plan(tuple(_nodes(explained["Plan"])), explained["Execution Time"])


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)
