"""Admit a batch: reservation and queued run commit together, or nothing does.

Lanes are locked first, payload hashes are compared in a later statement: a one-statement insert-or-compare sees
neither its own insert nor the row it lost against. Only when `admit` has returned may the offset move.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

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
            outcomes: list[Outcome | Exception] = [*await self._admit_in(tx, candidates)]
            self._reached("admission.before_commit")
        self._reached("admission.committed")
        return outcomes

    async def _admit_in(self, tx: Connection, candidates: Sequence[Candidate]) -> list[Outcome]:
        lanes = await store.lock_lanes(tx, candidates)
        reserved = await store.reserve(tx, candidates, lanes, self._ttl)
        outcomes: dict[int, Outcome] = {}
        refused = [(n, c) for n, c in enumerate(candidates) if c.run_id not in reserved]
        if refused:
            outcomes = await self._judge(tx, refused, lanes)
        queued = [
            c for n, c in enumerate(candidates) if c.run_id in reserved or isinstance(outcomes[n], Healed)
        ]
        if queued:
            await store.queue_runs(tx, queued, lanes)
        return [outcomes.get(n) or Admitted(c.run_id) for n, c in enumerate(candidates)]

    async def _judge(
        self, tx: Connection, refused: Sequence[tuple[int, Candidate]], lanes: Mapping[bytes, store.Lane]
    ) -> dict[int, Outcome]:
        known = await store.read_reservations(tx, [candidate for _, candidate in refused])
        outcomes: dict[int, Outcome] = {}
        heals: dict[int, Heal] = {}
        for (n, candidate), (by_event, by_message) in zip(refused, known, strict=True):
            generation = lanes[candidate.lane_key].generation
            match decide(candidate, by_event, by_message, generation):
                case Heal(reservation_id) as heal if reservation_id not in heals:
                    heals[reservation_id] = heal
                    outcomes[n] = Healed(candidate.run_id)
                case Heal(reservation_id):
                    outcomes[n] = Duplicate(heals[reservation_id].run_id)
                case (Duplicate() | Mismatch() | Unhealable()) as final:
                    outcomes[n] = final
        if heals:
            await store.heal(tx, list(heals), [heal.run_id for heal in heals.values()])
        return outcomes

    async def expire_reservations(self, at_most: int = 1000) -> int:
        """Remove expired reservations whose runs are terminal; returns how many (fewer than `at_most`: done)."""
        async with self._database.transaction() as tx:
            return await store.delete_expired_reservations(tx, at_most)
