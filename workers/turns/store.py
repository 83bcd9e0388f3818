"""The statements of a turn. The caller opens the transaction; nothing here commits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from schemas.errors import ParleyError
from workers.agents.journal import StepRecord
from workers.postgres.database import Connection, Row
from workers.postgres.rows import as_rows, touched
from workers.postgres.sql import load
from workers.turns.policy import ReadyLane

HOLD_SESSION = load(__package__, "hold_session")
FIND_READY = load(__package__, "find_ready")
FIND_READY_IN = load(__package__, "find_ready_in")
FIND_NEW_GROUPS = load(__package__, "find_new_groups")
LOCK_READY_LANES = load(__package__, "lock_ready_lanes")
LOCK_LANES = load(__package__, "lock_lanes")
READ_HEADS = load(__package__, "read_heads")
TAKE_LANES = load(__package__, "take_lanes")
POSTPONE_READY = load(__package__, "postpone_ready")
DROP_READY = load(__package__, "drop_ready")
LOCK_WITH_KEYS = load(__package__, "lock_with_keys")
LOCK_OWNED = load(__package__, "lock_owned")
INSERT_STEPS = load(__package__, "insert_steps")
READ_STEPS = load(__package__, "read_steps")
SETTLE_RUNS = load(__package__, "settle_runs")
RELEASE_TURNS = load(__package__, "release_turns")
MARK_NEXT_READY = load(__package__, "mark_next_ready")
REQUEUE_LANES = load(__package__, "requeue_lanes")
READ_OUTCOMES = load(__package__, "read_outcomes")
READ_CANCELLED = load(__package__, "read_cancelled")
WITHHOLD_INPUTS = load(__package__, "withhold_inputs")
LOCK_SESSION_LANES = load(__package__, "lock_session_lanes")
READ_SESSION_TURNS = load(__package__, "read_session_turns")


class Ownership(NamedTuple):
    """What a write of a turn must still hold: the lane, by this run, under this epoch."""

    lane_id: int
    run_id: UUID
    epoch: int


# Made for every turn: a frozen one costs three times as much to make.
@dataclass(slots=True)
class Head:
    """The head run of a locked lane, as read after the lock."""

    lane_id: int
    lane_generation: int
    epoch: int
    run_id: UUID
    generation: int
    agent: str
    memory_key: str | None
    channel: str
    account: str
    event_id: str
    status: str
    retries: int
    crashes: int
    attempts: int
    traceparent: str | None
    event: bytes
    cancel_requested: bool
    due_at: datetime
    due: bool
    resumed: bool
    owned_by: UUID | None
    snapshot: bytes | None
    snapshot_digest: bytes | None

    @property
    def sender(self) -> str:
        """The account as the ready queue names it: accounts of two channels are two, whatever they are called."""
        return f"{self.channel}/{self.account}"


class SessionGone(ParleyError):
    """The worker session was taken over: this process must not claim under it any more."""


async def hold_session(tx: Connection, session_id: UUID) -> None:
    """Keep the session from being taken over until the transaction ends. Raises SessionGone where it already was."""
    if await tx.fetchrow(HOLD_SESSION, session_id) is None:
        raise SessionGone(session_id)


async def find_ready(
    tx: Connection,
    agents: Sequence[str],
    without_accounts: Sequence[str],
    without_channels: Sequence[str],
    after: tuple[str, str],
    *,
    groups: int,
    per_group: int,
    at_most: int,
) -> tuple[list[tuple[ReadyLane, datetime]], tuple[str, str] | None]:
    """Due lanes of the next groups after `after`, since when, and the last group looked at where more may follow."""
    without = (without_accounts, without_channels)
    rows = await tx.fetch(FIND_READY, agents, after[0], after[1], groups, per_group, at_most, *without)
    lanes = [
        (ReadyLane(row["lane_id"], row["agent"], row["account"]), row["due_at"])
        for row in rows
        if row["lane_id"] is not None
    ]
    if len(lanes) < len(rows):
        return lanes, (rows[-1]["agent"], rows[-1]["account"])
    return lanes, None


async def find_ready_in(
    tx: Connection, groups: Sequence[tuple[str, str]], marks: Sequence[datetime], per_group: int
) -> Sequence[Row]:
    """Due lanes of these groups from their marks on; a row without a lane for a group that has none."""
    return await tx.fetch(
        FIND_READY_IN, [agent for agent, _ in groups], [account for _, account in groups], marks, per_group
    )


async def find_new_groups(
    tx: Connection, agents: Sequence[str], known: Sequence[tuple[str, str]]
) -> Sequence[Row]:
    """Groups of these agents that have something in the queue, due or not, one between any two known ones."""
    return await tx.fetch(
        FIND_NEW_GROUPS, [agent for agent, _ in known], [account for _, account in known], agents
    )


async def lock_ready_lanes(tx: Connection, lane_ids: Sequence[int], session_id: UUID) -> list[int]:
    """Hold the session, then lock what nobody else holds; nothing where the session was taken over."""
    return [row["id"] for row in await tx.fetch(LOCK_READY_LANES, lane_ids, session_id)]


async def lock_lanes(tx: Connection, lane_ids: Sequence[int]) -> list[int]:
    """Lock what nobody else holds at this moment, in id order."""
    return [row["id"] for row in await tx.fetch(LOCK_LANES, lane_ids)]


async def read_heads(tx: Connection, lane_ids: Sequence[int], recall_wait: timedelta) -> list[Head]:
    rows = await tx.fetch(READ_HEADS, lane_ids, recall_wait)
    return [_head(row) for row in rows]


def _head(row: Row) -> Head:
    return Head(
        lane_id=row["lane_id"],
        lane_generation=row["lane_generation"],
        epoch=row["epoch"],
        run_id=row["run_id"],
        generation=row["generation"],
        agent=row["agent"],
        memory_key=row["memory_key"],
        channel=row["channel"],
        account=row["account"],
        event_id=row["event_id"],
        status=row["status"],
        retries=row["retries"],
        crashes=row["crashes"],
        attempts=row["attempts"],
        traceparent=row["traceparent"],
        event=row["event"],
        cancel_requested=row["cancel_requested"],
        due_at=row["due_at"],
        due=row["due"],
        resumed=row["resumed"],
        owned_by=row["owned_by"],
        snapshot=row["snapshot"],
        snapshot_digest=row["snapshot_digest"],
    )


async def take_lanes(
    tx: Connection,
    heads: Sequence[Head],
    snapshots: Sequence[bytes | None],
    digests: Sequence[bytes | None],
    session_id: UUID,
) -> Mapping[int, int]:
    """Take ownership of the heads' lanes; returns each lane's new epoch."""
    rows = await tx.fetch(
        TAKE_LANES,
        [head.lane_id for head in heads],
        [head.run_id for head in heads],
        snapshots,
        digests,
        session_id,
    )
    return {row["lane_id"]: row["epoch"] for row in rows}


async def postpone_ready(tx: Connection, until: Mapping[int, datetime | timedelta]) -> None:
    """Let ready lanes wait: until a time of the database's clock, or for so long from now."""
    await tx.execute(
        POSTPONE_READY,
        list(until),
        [when if isinstance(when, datetime) else None for when in until.values()],
        [when if isinstance(when, timedelta) else None for when in until.values()],
    )


async def drop_ready(tx: Connection, lane_ids: Sequence[int]) -> None:
    await tx.execute(DROP_READY, lane_ids)


async def lock_with_keys(tx: Connection, lane_ids: Sequence[int], keys: Sequence[bytes]) -> None:
    """Lock lanes by id and by key in one order, waiting for whoever holds them."""
    await tx.fetch(LOCK_WITH_KEYS, lane_ids, keys)


async def lock_owned(tx: Connection, held: Sequence[Ownership]) -> set[tuple[int, int]]:
    """Lock what is still owned; returns (lane, epoch) of that, and the rest is lost ownership."""
    distinct = list({(own.lane_id, own.epoch): own for own in held}.values())
    rows = await tx.fetch(
        LOCK_OWNED,
        [own.lane_id for own in distinct],
        [own.run_id for own in distinct],
        [own.epoch for own in distinct],
    )
    return {(row["id"], row["epoch"]) for row in rows}


_STEP = (
    *("run_id", "step", "call", "kind", "name", "args_digest", "agent_version", "state", "result"),
    "epoch",
)


async def insert_steps(tx: Connection, steps: Sequence[tuple[Ownership, StepRecord]]) -> None:
    await tx.execute(
        INSERT_STEPS,
        as_rows(
            _STEP,
            [
                (
                    own.run_id,
                    step.step,
                    step.call,
                    step.kind,
                    step.name,
                    step.args_digest,
                    step.agent_version,
                    step.state,
                    step.result,
                    own.epoch,
                )
                for own, step in steps
            ],
        ),
    )


async def read_steps(tx: Connection, run_id: UUID) -> dict[tuple[int, int], StepRecord]:
    rows = await tx.fetch(READ_STEPS, run_id)
    return {
        (row["step"], row["call"]): StepRecord(
            step=row["step"],
            call=row["call"],
            kind=row["kind"],
            name=row["name"],
            args_digest=row["args_digest"],
            agent_version=row["agent_version"],
            state=row["state"],
            result=row["result"],
        )
        for row in rows
    }


async def settle_runs(
    tx: Connection,
    held: Sequence[Ownership],
    statuses: Sequence[str],
    reasons: Sequence[str | None],
    usages: Sequence[str | None],
) -> None:
    await tx.execute(
        SETTLE_RUNS,
        [own.lane_id for own in held],
        [own.run_id for own in held],
        statuses,
        reasons,
        usages,
    )


@dataclass(frozen=True, slots=True)
class Release:
    """How a run goes back to the queue: due after `wait`, with these counts raised."""

    own: Ownership
    status: str
    wait: timedelta
    retries: int = 0
    crashes: int = 0
    attempts: int = 0
    reason: str | None = None


async def release_turns(tx: Connection, releases: Sequence[Release]) -> None:
    await tx.execute(
        RELEASE_TURNS,
        [release.own.lane_id for release in releases],
        [release.own.run_id for release in releases],
        [release.status for release in releases],
        [release.wait for release in releases],
        [release.retries for release in releases],
        [release.crashes for release in releases],
        [release.attempts for release in releases],
        [release.reason for release in releases],
    )


async def mark_next_ready(tx: Connection, lane_ids: Sequence[int], recall_wait: timedelta) -> int:
    """Queue the next heads of lanes that were just freed; returns how many have one."""
    return touched(await tx.execute(MARK_NEXT_READY, lane_ids, recall_wait))


async def requeue_lanes(tx: Connection, lane_ids: Sequence[int]) -> list[int]:
    """Queue the heads of lanes that no live turn owns and that are not queued; returns those lanes."""
    return [row["lane_id"] for row in await tx.fetch(REQUEUE_LANES, lane_ids)]


async def withhold_inputs(tx: Connection, held: Sequence[Ownership]) -> None:
    await tx.execute(WITHHOLD_INPUTS, [own.run_id for own in held], [own.lane_id for own in held])


async def read_session_turns(tx: Connection, session_id: UUID) -> Sequence[Row]:
    """Lock the lanes of the session's turns, then read those turns with the state of their runs."""
    lanes = [row["id"] for row in await tx.fetch(LOCK_SESSION_LANES, session_id)]
    return await tx.fetch(READ_SESSION_TURNS, session_id, lanes)


async def read_outcomes(tx: Connection, run_ids: Sequence[UUID]) -> dict[UUID, tuple[int, str, str | None]]:
    """Each run's last epoch, status and reason."""
    rows = await tx.fetch(READ_OUTCOMES, run_ids)
    return {row["id"]: (row["epoch"], row["status"], row["reason"]) for row in rows}


async def read_cancelled(tx: Connection, run_ids: Sequence[UUID]) -> list[UUID]:
    return [row["id"] for row in await tx.fetch(READ_CANCELLED, run_ids)]
