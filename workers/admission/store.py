"""The statements of admission. The caller opens the transaction; nothing here commits."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from workers.admission.policy import Candidate, Reserved
from workers.postgres.database import Connection
from workers.postgres.rows import as_rows
from workers.postgres.sql import load

FIND_LANES = load(__package__, "find_lanes")
INSERT_LANES = load(__package__, "insert_lanes")
LOCK_LANES = load(__package__, "lock_lanes")
INSERT_RESERVATIONS = load(__package__, "insert_reservations")
READ_RESERVATIONS = load(__package__, "read_reservations")
HEAL_RESERVATIONS = load(__package__, "heal_reservations")
INSERT_RUNS = load(__package__, "insert_runs")
MARK_READY = load(__package__, "mark_ready")
DELETE_EXPIRED_RESERVATIONS = load(__package__, "delete_expired_reservations")
COUNT_EXPIRED_RESERVATIONS = load(__package__, "count_expired_reservations")


RESERVATION = (
    *("agent", "channel", "account", "event_id", "message_id", "payload_hash", "hash_version", "run_id"),
    *("lane_id", "generation"),
)
RUN = (
    *("id", "lane_id", "generation", "agent", "memory_key", "channel", "account", "event_id"),
    *("traceparent", "event"),
)


class Lane(NamedTuple):
    lane_id: int
    generation: int


async def make_lanes(tx: Connection, candidates: Sequence[Candidate]) -> None:
    """Make the lanes that are missing and lock none that is there, for a caller who locks them among others."""
    by_key = {candidate.lane_key: candidate for candidate in candidates}
    known = await tx.fetch(FIND_LANES, list(by_key))
    if missing := sorted(by_key.keys() - {row["key"] for row in known}):
        await _insert_lanes(tx, [by_key[key] for key in missing])


async def lock_lanes(tx: Connection, candidates: Sequence[Candidate]) -> Mapping[bytes, Lane]:
    """Make the lanes that are missing, then lock all of them in id order; one pruned in between is made again."""
    by_key = {candidate.lane_key: candidate for candidate in candidates}
    known = await tx.fetch(FIND_LANES, list(by_key))
    while True:
        if missing := sorted(by_key.keys() - {row["key"] for row in known}):
            await _insert_lanes(tx, [by_key[key] for key in missing])
        rows = await tx.fetch(LOCK_LANES, list(by_key))
        if len(rows) == len(by_key):
            break
        known = rows
    return {row["key"]: Lane(row["id"], row["generation"]) for row in rows}


async def _insert_lanes(tx: Connection, candidates: Sequence[Candidate]) -> None:
    identities = [candidate.identity for candidate in candidates]
    await tx.execute(
        INSERT_LANES,
        [candidate.lane_key for candidate in candidates],
        [candidate.lane_kind for candidate in candidates],
        [identity and identity.memory_key for identity in identities],
        [identity and identity.channel for identity in identities],
        [identity and identity.account for identity in identities],
        [identity and identity.chat for identity in identities],
        [identity and identity.audience for identity in identities],
    )


async def reserve(
    tx: Connection, candidates: Sequence[Candidate], lanes: Mapping[bytes, Lane], ttl: timedelta
) -> set[UUID]:
    """Reserve what is free and return the run ids of the candidates that got their reservation."""
    # One order for all workers: two batches that hold twins of one message meet them in the same sequence.
    ordered = sorted(
        candidates, key=lambda c: (c.channel, c.account, c.message_id or "", c.event_id, c.agent)
    )
    rows = await tx.fetch(
        INSERT_RESERVATIONS,
        as_rows(
            RESERVATION,
            [
                (
                    c.agent,
                    c.channel,
                    c.account,
                    c.event_id,
                    c.message_id,
                    c.payload_hash,
                    c.hash_version,
                    c.run_id,
                )
                + lanes[c.lane_key]
                for c in ordered
            ],
        ),
        ttl,
    )
    return {row["run_id"] for row in rows}


async def read_reservations(
    tx: Connection, candidates: Sequence[Candidate]
) -> list[tuple[Reserved | None, Reserved | None]]:
    """What holds each candidate's identities: (by event id, by message identity), in the candidates' order."""
    rows = await tx.fetch(
        READ_RESERVATIONS,
        [c.agent for c in candidates],
        [c.channel for c in candidates],
        [c.account for c in candidates],
        [c.event_id for c in candidates],
        [c.message_id for c in candidates],
    )
    by_event: dict[int, Reserved] = {}
    by_message: dict[int, Reserved] = {}
    for row in rows:
        found = by_event if row["by"] == "event" else by_message
        found[row["n"] - 1] = Reserved(
            row["id"],
            row["run_id"],
            row["payload_hash"],
            row["hash_version"],
            row["generation"],
            row["outcome"],
            row["has_run"],
            row["lane_generation"],
        )
    return [(by_event.get(index), by_message.get(index)) for index in range(len(candidates))]


async def heal(tx: Connection, heals: Mapping[int, Candidate], lanes: Mapping[bytes, Lane]) -> None:
    """Give orphan reservations, by id, the runs of these candidates and their lanes."""
    await tx.execute(
        HEAL_RESERVATIONS,
        list(heals),
        [candidate.run_id for candidate in heals.values()],
        [lanes[candidate.lane_key].lane_id for candidate in heals.values()],
    )


async def queue_runs(tx: Connection, candidates: Sequence[Candidate], lanes: Mapping[bytes, Lane]) -> None:
    """Queue one run a candidate in the candidates' order and make their lanes ready."""
    await tx.execute(
        INSERT_RUNS,
        as_rows(
            RUN,
            [
                (
                    c.run_id,
                    *lanes[c.lane_key],
                    c.agent,
                    c.identity and c.identity.memory_key,
                    c.channel,
                    c.account,
                    c.event_id,
                    c.traceparent,
                    c.event,
                )
                for c in candidates
            ],
        ),
    )
    await mark_ready(tx, sorted({lanes[c.lane_key].lane_id for c in candidates}))


async def mark_ready(tx: Connection, lane_ids: Sequence[int]) -> None:
    await tx.execute(MARK_READY, list(lane_ids))


async def delete_expired_reservations(tx: Connection, at_most: int) -> int:
    row = await tx.fetchrow(DELETE_EXPIRED_RESERVATIONS, at_most)
    assert row is not None
    removed: int = row["removed"]
    return removed


async def count_expired_reservations(tx: Connection) -> int:
    row = await tx.fetchrow(COUNT_EXPIRED_RESERVATIONS)
    assert row is not None
    expired: int = row["expired"]
    return expired
