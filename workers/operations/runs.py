"""Look at runs and cancel them: a run that nobody works on ends at once, one that is running is asked to stop.

A queued head that ends leaves its lane with the next head in the ready queue; a released turn (backing off, waiting,
interrupted) gives its lane up with its snapshot. What the run still had to send is abandoned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, assert_never
from uuid import UUID

from schemas.run import RunStatus
from workers.delivery.journal import abandon_pending
from workers.operations import audit, store
from workers.operations.errors import NotFound
from workers.operations.policy import (
    CANCELLED_BY_OPERATOR,
    AlreadyOver,
    AskWorker,
    EndNow,
    RunState,
    decide_cancel,
)
from workers.postgres.database import Connection, Database
from workers.postgres.sql import load
from workers.turns import store as turns
from workers.turns.claim import DEFAULT_RECALL_WAIT
from workers.turns.lanes import hold_lanes
from workers.turns.store import Ownership

LIST_RUNS = load(__package__, "list_runs")
READ_RUN = load(__package__, "read_run")
READ_RUN_STEPS = load(__package__, "read_run_steps")
READ_RUN_DELIVERIES = load(__package__, "read_run_deliveries")

RUNS_A_TRANSACTION: Final = 200


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in a list; no text of the event is in it."""

    run_id: UUID
    agent: str
    status: str
    reason: str | None
    channel: str
    account: str
    event_id: str
    retries: int
    attempts: int
    admitted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None


@dataclass(frozen=True, slots=True)
class StepLine:
    """One journalled step, without arguments and result."""

    step: int
    call: int
    kind: str
    name: str
    state: str
    agent_version: str
    result_bytes: int | None
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeliveryLine:
    """One delivery of the run, without its text."""

    delivery_id: UUID
    key: str
    state: str
    reason: str | None
    attempt: int
    channel: str
    account: str
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with its journal and its deliveries; `session_id` and `worker` while somebody works on it."""

    run: RunLine
    lane_id: int
    generation: int
    position: int
    memory_key: str | None
    epoch: int
    crashes: int
    due_at: datetime
    usage: str | None
    session_id: UUID | None
    worker: str | None
    steps: tuple[StepLine, ...]
    deliveries: tuple[DeliveryLine, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel did: `cancelled` now, `requested` of a worker, or `over` before with `status`."""

    run_id: UUID
    outcome: Literal["cancelled", "requested", "over"]
    status: str


async def list_runs(
    database: Database,
    *,
    agent: str | None = None,
    status: str | None = None,
    channel: str | None = None,
    open_only: bool = False,
    at_most: int = 50,
) -> list[RunLine]:
    """The newest runs that fit, newest first."""
    rows = await database.fetch(LIST_RUNS, agent, status, channel, open_only, at_most)
    return [RunLine(*row) for row in rows]


async def show_run(database: Database, run_id: UUID) -> RunDetail:
    """One run. Raises NotFound."""
    async with database.acquire() as connection:
        row = await connection.fetchrow(READ_RUN, run_id)
        if row is None:
            raise _unknown(run_id)
        steps = await connection.fetch(READ_RUN_STEPS, run_id)
        deliveries = await connection.fetch(READ_RUN_DELIVERIES, run_id)
    return RunDetail(
        run=RunLine(*tuple(row)[:13]),
        lane_id=row["lane_id"],
        generation=row["generation"],
        position=row["position"],
        memory_key=row["memory_key"],
        epoch=row["epoch"],
        crashes=row["crashes"],
        due_at=row["due_at"],
        usage=row["usage"],
        session_id=row["session_id"],
        worker=row["worker"],
        steps=tuple(StepLine(*step) for step in steps),
        deliveries=tuple(DeliveryLine(*delivery) for delivery in deliveries),
    )


async def cancel_runs(database: Database, run_ids: Sequence[UUID], actor: str) -> list[Cancelled]:
    """Cancel these runs, all or none; one result a run, in the order of their lanes. Raises NotFound."""
    async with database.transaction() as tx:
        lanes = await store.find_runs(tx, run_ids)
        for run_id in run_ids:
            if run_id not in lanes:
                raise _unknown(run_id)
        return await _cancel(tx, lanes, actor)


async def cancel_runs_of(database: Database, agent: str, actor: str) -> list[Cancelled]:
    """Cancel every open run of `agent`, some hundreds a transaction; runs admitted meanwhile may stay."""
    after, results = (0, 0), list[Cancelled]()
    while True:
        async with database.transaction() as tx:
            found = await store.find_open_runs(tx, agent, after, RUNS_A_TRANSACTION)
            if not found:
                return results
            results += await _cancel(tx, {run_id: lane_id for run_id, lane_id, _ in found}, actor)
        after = found[-1][1:]


async def _cancel(tx: Connection, lanes: dict[UUID, int], actor: str) -> list[Cancelled]:
    await hold_lanes(tx, sorted(set(lanes.values())))
    states = await store.read_run_states(tx, list(lanes))
    results = [_result(state) for state in states]
    await end_runs(tx, [state for state in states if isinstance(decide_cancel(state), EndNow)])
    asked = [state.run_id for state in states if isinstance(decide_cancel(state), AskWorker)]
    if asked:
        await store.request_cancel(tx, asked)
    for result in results:
        if result.outcome != "over":
            await audit.record(tx, actor, "run.cancel", str(result.run_id), {"outcome": result.outcome})
    await store.hint(tx, "cancel", "ready")
    return results


def _result(state: RunState) -> Cancelled:
    match decide_cancel(state):
        case EndNow():
            return Cancelled(state.run_id, "cancelled", RunStatus.CANCELLED.value)
        case AskWorker():
            return Cancelled(state.run_id, "requested", state.status)
        case AlreadyOver(status):
            return Cancelled(state.run_id, "over", status)
        case never:
            assert_never(never)


async def end_runs(tx: Connection, states: Sequence[RunState], reason: str = CANCELLED_BY_OPERATOR) -> None:
    """End open runs that no worker session holds; the caller holds their lanes. Their next heads become ready."""
    if not states:
        return
    owners = [Ownership(state.lane_id, state.run_id, state.epoch) for state in states if state.owns]
    if owners:
        cancelled = [RunStatus.CANCELLED.value] * len(owners)
        await turns.settle_runs(tx, owners, cancelled, [reason] * len(owners), [None] * len(owners))
    queued = [state.run_id for state in states if not state.owns]
    if queued:
        await store.end_queued_runs(tx, queued, reason)
    await abandon_pending(tx, [state.run_id for state in states], f"abandoned: {reason}")
    lanes = sorted({state.lane_id for state in states})
    await store.drop_free_ready(tx, lanes)
    await turns.mark_next_ready(tx, lanes, DEFAULT_RECALL_WAIT)


def _unknown(run_id: UUID) -> NotFound:
    return NotFound("run", str(run_id), "`parley runs list` shows the newest")
