"""What the database holds, read as it is, and held against what the model says it must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from tests.model.expected import Book, Item, Reply, Run
from workers.postgres.database import Connection, Database, Row

LANES = "select id, key, generation, epoch, owner_run from lanes order by id"
RUNS = "select id, lane_id, generation, position, agent, event_id, status, finished_at from runs order by position"
TURNS = "select lane_id, run_id, epoch, session_id, snapshot, snapshot_digest from turns"
ITEMS = "select lane_id, generation, kind, status, run_id, event_id, reply_key, body from items order by id"
NOTES = """
select lane_id, generation, key, body, expires_at is null or expires_at > parley_now() as live
  from notes order by key
"""
OPERATIONS = "select lane_id, run_id, step, call, act, key, receipt::text as receipt from note_operations"
DELIVERIES = "select key, run_id, state, reason, convert_from(body, 'UTF8') as body from deliveries"
STEPS = "select run_id, count(*) as steps from run_steps group by run_id"


@dataclass(frozen=True)
class Found:
    """Every row that conversations are made of."""

    lanes: Sequence[Row]
    runs: Sequence[Row]
    turns: dict[int, Row]
    items: Sequence[Row]
    notes: Sequence[Row]
    operations: Sequence[Row]
    deliveries: dict[str, Row]
    steps: dict[UUID, int]


async def look(database: Database) -> Found:
    async with database.acquire() as connection:
        return Found(
            lanes=await connection.fetch(LANES),
            runs=await connection.fetch(RUNS),
            turns={row["lane_id"]: row for row in await connection.fetch(TURNS)},
            items=await connection.fetch(ITEMS),
            notes=await connection.fetch(NOTES),
            operations=await connection.fetch(OPERATIONS),
            deliveries={row["key"]: row for row in await connection.fetch(DELIVERIES)},
            steps={row["run_id"]: row["steps"] for row in await connection.fetch(STEPS)},
        )


async def turn_of(connection: Connection | Database, run: Run) -> Row | None:
    """The turn that the run owns its conversation by."""
    return await connection.fetchrow(
        "select snapshot, snapshot_digest, epoch, session_id from turns where run_id = $1", run.run_id
    )


def hold_against(found: Found, books: Sequence[Book], runs: Sequence[Run], now: float) -> None:
    """Raise AssertionError at the first thing that is not as the model says."""
    _runs(found, runs)
    for book in books:
        if book.lane_id is not None:
            _ownership(found, book)
            _items(found, book)
            _notes(found, book, now)
            _operations(found, book)
            _nothing_of_the_deleted(found, book)
    _replies(found, [reply for run in runs if not run.pruned for reply in run.replies])
    for run in runs:
        if not run.pruned:
            same(f"steps in the journal of {run.event_id}", found.steps.get(run.run_id, 0), run.journalled)


def same(what: str, is_now: Any, must_be: Any) -> None:
    assert is_now == must_be, f"{what}: is {is_now!r}, must be {must_be!r}"


def _runs(found: Found, runs: Sequence[Run]) -> None:
    kept = {run.run_id: run for run in runs if not run.pruned}
    same("the runs", {row["id"] for row in found.runs}, set(kept))
    for row in found.runs:
        run = kept[row["id"]]
        what = f"run of {run.event_id} by {run.agent}"
        same(f"generation of the {what}", row["generation"], run.generation)
        same(f"whether the {what} has ended", row["finished_at"] is not None, run.status != "open")
        if run.status != "open":
            same(f"the end of the {what}", row["status"], run.status)
    open_runs = [row["id"] for row in found.runs if row["finished_at"] is None]
    for book in {id(run.book): run.book for run in runs}.values():
        waiting = [run.run_id for run in book.queue]
        same(f"the queue of {book.name}", [each for each in open_runs if each in waiting], waiting)


def _ownership(found: Found, book: Book) -> None:
    [lane] = [row for row in found.lanes if row["id"] == book.lane_id]
    turn = found.turns.get(lane["id"])
    owner = book.owner
    same(f"generation of {book.name}", lane["generation"], book.generation)
    same(f"owner of {book.name}", lane["owner_run"], owner and owner.run_id)
    same(f"whose turn {book.name} holds", turn and turn["run_id"], owner and owner.run_id)
    if owner is not None and turn is not None:
        holder = owner.holder and owner.holder.worker.session_id
        same(f"who holds the turn of {book.name}", turn["session_id"], holder)
        same(f"the frozen snapshot of {book.name}", turn["snapshot"], owner.frozen)
        same(f"its digest in {book.name}", turn["snapshot_digest"], sha256(turn["snapshot"]).digest())
        if holder is not None:
            same(f"epoch of {book.name}", lane["epoch"], turn["epoch"])


def _items(found: Found, book: Book) -> None:
    held = [
        (r["generation"], r["kind"], r["status"], r["run_id"], r["event_id"], r["reply_key"], r["body"])
        for r in found.items
        if r["lane_id"] == book.lane_id
    ]
    same(f"the transcript of {book.name}", held, [_line(item) for item in book.items])


def _line(item: Item) -> tuple[Any, ...]:
    key = item.reply and item.reply.key
    return (item.generation, item.kind, item.status, item.run.run_id, item.event_id, key, item.body)


def _notes(found: Found, book: Book, now: float) -> None:
    here = [row for row in found.notes if row["lane_id"] == book.lane_id]
    live = [(row["generation"], row["key"], row["body"]) for row in here if row["live"]]
    must = sorted((book.generation, key, body) for key, body in book.live_notes(now))
    same(f"the live notes of {book.name}", sorted(live), must)
    assert all(row["generation"] == book.generation for row in here), f"{book.name}: notes of the past"


def _operations(found: Found, book: Book) -> None:
    held = {
        (row["run_id"], row["step"], row["call"], row["act"], row["key"])
        for row in found.operations
        if row["lane_id"] == book.lane_id
    }
    must = {(run.run_id, step, 0, act, key) for run in book.runs for step, (act, key) in run.receipts.items()}
    same(f"the note operations of {book.name}", held, must)


def _nothing_of_the_deleted(found: Found, book: Book) -> None:
    held = [row["body"] or "" for row in found.items if row["lane_id"] == book.lane_id]
    held += [row["body"] for row in found.notes if row["lane_id"] == book.lane_id]
    held += [row["receipt"] for row in found.operations if row["lane_id"] == book.lane_id]
    turn = found.turns.get(book.lane_id or 0)
    shown = "" if turn is None else turn["snapshot"].decode()
    for text in book.gone:
        assert not any(text in each for each in held), f"{book.name} still holds {text!r}, which was deleted"
    for text in book.gone | book.forgotten:
        assert text not in shown, f"{book.name} recalls {text!r} of an earlier generation"


def _replies(found: Found, replies: Sequence[Reply]) -> None:
    chunks = {chunk.key: chunk for reply in replies for chunk in reply.chunks}
    same("the deliveries", set(found.deliveries), set(chunks))
    for key, chunk in chunks.items():
        row = found.deliveries[key]
        same(f"the delivery of {chunk.text!r}", row["state"], chunk.state)
        if chunk.cancelled and not chunk.final:
            same(f"why {chunk.text!r} is not sent again", row["reason"], "cancelled")
