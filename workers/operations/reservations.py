"""Look at reservations, and free one whose run is gone so that its event may be admitted again.

A reservation without run and outcome comes from a restored backup; after a reset or delete admission does not heal
it. Releasing forgets that the event was ever seen: it is refused while the run is open, and needs an explicit
word where the run has ended.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from schemas.run import TERMINAL
from workers.operations import audit
from workers.operations.errors import ActRefused, NotFound
from workers.operations.policy import ReservationState, refuse_release
from workers.postgres.database import Database
from workers.postgres.sql import load
from workers.turns.lanes import hold_lanes

LIST_RESERVATIONS = load(__package__, "list_reservations")
READ_RESERVATION = load(__package__, "read_reservation")
FIND_RESERVATION_LANE = load(__package__, "find_reservation_lane")
LOCK_RESERVATION = load(__package__, "lock_reservation")
DELETE_RESERVATION = load(__package__, "delete_reservation")


@dataclass(frozen=True, slots=True)
class ReservationLine:
    """A reservation; `run_status` is None where its run is missing, `lane_generation` where its lane is."""

    reservation_id: int
    agent: str
    channel: str
    account: str
    event_id: str
    message_id: str | None
    run_id: UUID
    run_status: str | None
    outcome: str | None
    generation: int
    lane_generation: int | None
    created_at: datetime
    expires_at: datetime

    @property
    def state(self) -> ReservationState:
        """What the policy decides by."""
        return ReservationState(
            self.reservation_id,
            self.run_id,
            self.run_status,
            self.run_status in TERMINAL,
            self.outcome,
        )


async def list_reservations(
    database: Database, *, agent: str | None = None, orphans_only: bool = False, at_most: int = 50
) -> list[ReservationLine]:
    """The newest reservations that fit, newest first."""
    rows = await database.fetch(LIST_RESERVATIONS, agent, orphans_only, at_most)
    return [ReservationLine(*row) for row in rows]


async def show_reservation(database: Database, reservation_id: int) -> ReservationLine:
    """One reservation. Raises NotFound."""
    row = await database.fetchrow(READ_RESERVATION, reservation_id)
    if row is None:
        raise _unknown(reservation_id)
    return ReservationLine(*row)


async def release(
    database: Database, reservation_id: int, actor: str, *, again: bool = False
) -> ReservationLine:
    """Free the reservation and return what it was. Raises NotFound, ActRefused.

    `again` frees one whose run has ended too: its event, sent or read once more, runs a second time.
    """
    async with database.transaction() as tx:
        lane = await tx.fetchrow(FIND_RESERVATION_LANE, reservation_id)
        if lane is None:
            raise _unknown(reservation_id)
        await hold_lanes(tx, [lane["lane_id"]])
        if await tx.fetchrow(LOCK_RESERVATION, reservation_id) is None:
            raise _unknown(reservation_id)
        row = await tx.fetchrow(READ_RESERVATION, reservation_id)
        assert row is not None, "it was locked by the statement before"
        found = ReservationLine(*row)
        if refusal := refuse_release(found.state, again=again):
            raise ActRefused(f"reservation {reservation_id} cannot be released", *refusal)
        await tx.execute(DELETE_RESERVATION, reservation_id)
        detail = {
            "agent": found.agent,
            "channel": found.channel,
            "account": found.account,
            "event_id": found.event_id,
            "run_id": str(found.run_id),
            "run_status": found.run_status,
            "again": again,
        }
        await audit.record(tx, actor, "reservation.release", str(reservation_id), detail)
    return found


def _unknown(reservation_id: int) -> NotFound:
    return NotFound("reservation", str(reservation_id), "`parley reservations list` shows the newest")
