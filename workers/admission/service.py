"""Admit a batch: reservation and queued run commit together, or nothing does.

Lanes are locked first, payload hashes are compared in a later statement: a one-statement insert-or-compare sees
neither its own insert nor the row it lost against. Only when `admit` has returned may the offset move.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from workers.admission import store
from workers.admission.policy import (
    Admitted,
    Candidate,
    Duplicate,
    Heal,
    Healed,
    Mismatch,
    Outcome,
    Unhealable,
    decide,
)
from workers.postgres.database import Connection, Database
from workers.postgres.group_commit import apply_in_halves

DEFAULT_IDEMPOTENCY_TTL = timedelta(days=7)


class Admission:
    """Turns candidates into runs, once each."""

    def __init__(
        self,
        database: Database,
        *,
        idempotency_ttl: timedelta = DEFAULT_IDEMPOTENCY_TTL,
        patience: timedelta | None = None,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._database = database
        self._ttl = idempotency_ttl
        self._patience = patience
        self._reached = reached

    async def admit(self, candidates: Sequence[Candidate]) -> list[Outcome | Exception]:
        """One outcome a candidate, in order; a candidate that the database refuses gets its data error alone.

        Database failures that blame no row are tried again for the patience given; then they stand in the list.
        """
        if not candidates:
            return []
        return await apply_in_halves(candidates, self._admit, self._patience)

    async def _admit(self, candidates: Sequence[Candidate]) -> list[Outcome | Exception]:
        async with self._database.transaction() as tx:
            outcomes: list[Outcome | Exception] = [*await self.admit_in(tx, candidates)]
            self._reached("admission.before_commit")
        self._reached("admission.committed")
        return outcomes

    async def admit_in(self, tx: Connection, candidates: Sequence[Candidate]) -> list[Outcome]:
        """As `admit`, in the caller's transaction; raises database errors."""
        lanes = await store.lock_lanes(tx, candidates)
        outcomes: dict[int, Outcome] = {}
        ours: set[UUID] = set()
        # A second pass is for those whose reservation expired between the insert that met it and the read.
        while undecided := [(n, c) for n, c in enumerate(candidates) if n not in outcomes]:
            reserved = await store.reserve(tx, [c for _, c in undecided], lanes, self._ttl)
            outcomes |= {n: Admitted(c.run_id) for n, c in undecided if c.run_id in reserved}
            ours |= reserved
            if refused := [(n, c) for n, c in undecided if c.run_id not in reserved]:
                outcomes |= await self._judge(tx, refused, lanes, ours)
        if queued := [c for c in candidates if c.run_id in ours]:
            await store.queue_runs(tx, queued, lanes)
        return [outcomes[n] for n in range(len(candidates))]

    async def _judge(
        self,
        tx: Connection,
        refused: Sequence[tuple[int, Candidate]],
        lanes: Mapping[bytes, store.Lane],
        ours: set[UUID],
    ) -> dict[int, Outcome]:
        """Outcomes of those whose reservation is still there; adds the runs that heal one to `ours`.

        `ours` are the runs that this transaction is about to queue: not a row yet, and no orphans.
        """
        known = await store.read_reservations(tx, [candidate for _, candidate in refused])
        outcomes: dict[int, Outcome] = {}
        heals: dict[int, Candidate] = {}
        for (n, candidate), (by_event, by_message) in zip(refused, known, strict=True):
            if by_event is None and by_message is None:
                continue
            lane_generation = lanes[candidate.lane_key].generation
            match decide(candidate, by_event, by_message, lane_generation, ours):
                case Heal(reservation_id) if reservation_id in heals:
                    outcomes[n] = Duplicate(heals[reservation_id].run_id)
                case Heal(reservation_id):
                    heals[reservation_id] = candidate
                    outcomes[n] = Healed(candidate.run_id)
                case (Admitted() | Duplicate() | Mismatch() | Unhealable()) as final:
                    outcomes[n] = final
        if heals:
            await store.heal(tx, heals, lanes)
            ours |= {candidate.run_id for candidate in heals.values()}
        return outcomes
