"""Reads the evidence: two files, the agents' lines, and the database by statements of the checker's own.

event list      {"event_id", "chat", "sequence", "channel", "capability", "agents"}, one line an acknowledged event
receiver's log  {"at_ns", "key", "text", ...}, one line an accepted request
agents' lines   {"turn", "run_id", "word", "fresh", "before_ns", "after_ns", "recalled"}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.checker.evidence import Accepted, Delivery, Evidence, Held, Line, Published, Reservation, Run, Step

RESERVATIONS = "select agent, event_id, run_id::text, outcome from reservations"
RUNS = """
select r.id::text, r.lane_id, c.lane_id is not null and r.memory_key is not null, r.position, r.agent, r.event_id,
       r.status, r.reason, r.started_at
  from runs r left join conversations c on c.lane_id = r.lane_id
"""
DELIVERIES = "select key, run_id::text, recalled, state, created_at from deliveries"
STEPS = "select run_id::text, step, epoch from run_steps"
HELD = """
with living as (
    select id from worker_sessions where dead_at is null and ended_at is null and lease_until > now()
)
select 'lane ' || l.id || ', owned by run ' || l.owner_run || ' without a turn', false
  from lanes l
 where l.owner_run is not null and not exists (select from turns t where t.lane_id = l.id)
union all
select 'turn of run ' || t.run_id, t.session_id is not null and t.session_id in (select id from living)
  from turns t
union all
select 'delivery ' || d.key || ', ' || d.state,
       d.state = 'sending' and d.session_id is not null and d.session_id in (select id from living)
  from deliveries d
 where d.state in ('pending', 'sending', 'uncertain')
"""


def read(event_list: Path, database_url: str, receiver_log: Path, lines: Path) -> Evidence:
    """All of it, the database at one moment."""
    with psycopg.connect(database_url) as connection:
        connection.execute("set transaction isolation level repeatable read, read only")
        rows = {
            name: connection.execute(statement).fetchall()
            for name, statement in (
                ("reservations", RESERVATIONS),
                ("runs", RUNS),
                ("deliveries", DELIVERIES),
                ("steps", STEPS),
                ("held", HELD),
            )
        }
    return Evidence(
        published=[_published(record) for record in _records(event_list)],
        reservations=[Reservation(*row) for row in rows["reservations"]],
        runs=[Run(*row) for row in rows["runs"]],
        deliveries=[Delivery(*row) for row in rows["deliveries"]],
        steps=[Step(*row) for row in rows["steps"]],
        held=[Held(*row) for row in rows["held"]],
        accepted=[Accepted(each["at_ns"], each["key"], each["text"]) for each in _records(receiver_log)],
        lines=[_line(record) for record in _records(lines)],
    )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def _published(record: dict[str, Any]) -> Published:
    return Published(**{**record, "agents": tuple(record["agents"])})


def _line(record: dict[str, Any]) -> Line:
    recalled = tuple((role, text) for role, text in record.get("recalled", []))
    return Line(**{**record, "recalled": recalled})
