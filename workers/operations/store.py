"""The statements of an operator's acts. The caller opens the transaction; nothing here commits."""

from collections.abc import Sequence
from uuid import UUID

from workers.operations.policy import RunState
from workers.postgres.database import Connection
from workers.postgres.hints import Hints
from workers.postgres.sql import load

FIND_RUNS = load(__package__, "find_runs")
FIND_OPEN_RUNS = load(__package__, "find_open_runs")
READ_RUN_STATES = load(__package__, "read_run_states")
END_QUEUED_RUNS = load(__package__, "end_queued_runs")
REQUEST_CANCEL = load(__package__, "request_cancel")
DROP_FREE_READY = load(__package__, "drop_free_ready")
NOTIFY_HINTS = load(__package__, "notify_hints")


async def find_runs(tx: Connection, run_ids: Sequence[UUID]) -> dict[UUID, int]:
    """The lane of each of the runs that exist."""
    return {row["id"]: row["lane_id"] for row in await tx.fetch(FIND_RUNS, run_ids)}


async def find_open_runs(
    tx: Connection, agent: str, after: tuple[int, int], at_most: int
) -> list[tuple[UUID, int, int]]:
    """(run, lane, position) of the agent's open runs after `after`, a (lane, position)."""
    rows = await tx.fetch(FIND_OPEN_RUNS, agent, *after, at_most)
    return [(row["id"], row["lane_id"], row["position"]) for row in rows]


async def read_run_states(tx: Connection, run_ids: Sequence[UUID]) -> list[RunState]:
    """How the runs stand, in the order of their lanes; the caller holds those."""
    return [
        RunState(
            run_id=row["id"],
            lane_id=row["lane_id"],
            status=row["status"],
            finished=row["finished"],
            owns=row["owns"],
            held=row["held"],
            epoch=row["epoch"],
        )
        for row in await tx.fetch(READ_RUN_STATES, run_ids)
    ]


async def end_queued_runs(tx: Connection, run_ids: Sequence[UUID], reason: str) -> None:
    await tx.execute(END_QUEUED_RUNS, run_ids, reason)


async def request_cancel(tx: Connection, run_ids: Sequence[UUID]) -> None:
    await tx.execute(REQUEST_CANCEL, run_ids)


async def drop_free_ready(tx: Connection, lane_ids: Sequence[int]) -> None:
    await tx.execute(DROP_FREE_READY, lane_ids)


async def hint(tx: Connection, *names: str) -> None:
    """Wake the workers' waiters of these names when the transaction commits; may be lost."""
    await tx.execute(NOTIFY_HINTS, Hints.CHANNEL, ",".join(names))
