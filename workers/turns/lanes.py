"""Lanes are locked in one order by whoever waits for them; claims, which never wait, skip those that are held."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from workers.postgres.database import Connection
from workers.postgres.sql import load

HOLD_LANES = load(__package__, "hold_lanes")


@dataclass(frozen=True, slots=True)
class Lane:
    """A locked lane."""

    lane_id: int
    generation: int
    owner_run: UUID | None


async def hold_lanes(tx: Connection, lane_ids: Sequence[int]) -> list[Lane]:
    """Lock the lanes in id order, waiting for each; those that are gone are left out."""
    return [
        Lane(row["id"], row["generation"], row["owner_run"]) for row in await tx.fetch(HOLD_LANES, lane_ids)
    ]
