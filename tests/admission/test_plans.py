"""The statements of admission touch what they are asked about, whatever else the tables hold."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from schemas.run import new_uuid7
from tests.support.big_tables import BigDatabase, plan_of
from tests.support.events import an_agent, an_event, candidates_of
from workers.admission import store
from workers.postgres.database import Database
from workers.postgres.rows import as_rows

BATCH = 100
TTL = timedelta(days=7)


@dataclass(frozen=True)
class Asked:
    """A batch that meets `BATCH` lanes and reservations that are there."""

    keys: list[bytes]
    numbers: list[int]

    @property
    def identities(self) -> list[list[object]]:
        return [
            [f"agent-{n % 10}" for n in self.numbers],
            ["lab"] * len(self.numbers),
            [f"account-{n % 50}" for n in self.numbers],
            [f"event-{n}" for n in self.numbers],
            [f"message-{n}" for n in self.numbers],
        ]

    @property
    def reservations(self) -> str:
        new = candidates_of(an_agent(), [an_event() for _ in self.numbers])
        return as_rows(
            store.RESERVATION,
            [
                (*met, c.payload_hash, c.hash_version, c.run_id, lane, 0)
                for *met, c, lane in zip(*self.identities, new, self.numbers, strict=True)
            ],
        )

    @property
    def runs(self) -> str:
        new = candidates_of(an_agent(), [an_event() for _ in self.numbers])
        return as_rows(
            store.RUN,
            [
                (c.run_id, lane, 0, c.agent, None, c.channel, c.account, c.event_id, None, c.event)
                for c, lane in zip(new, self.numbers, strict=True)
            ],
        )


STATEMENTS: dict[str, tuple[str, Callable[[Asked], list[object]]]] = {
    "find_lanes": (store.FIND_LANES, lambda asked: [asked.keys]),
    "lock_lanes": (store.LOCK_LANES, lambda asked: [asked.keys]),
    "insert_reservations": (store.INSERT_RESERVATIONS, lambda asked: [asked.reservations, TTL]),
    "read_reservations": (store.READ_RESERVATIONS, lambda asked: [*asked.identities]),
    "insert_runs": (store.INSERT_RUNS, lambda asked: [asked.runs]),
    "mark_ready": (store.MARK_READY, lambda asked: [asked.numbers]),
    "heal_reservations": (
        store.HEAL_RESERVATIONS,
        lambda asked: [asked.numbers, [new_uuid7() for _ in asked.numbers], asked.numbers],
    ),
    "delete_expired_reservations": (store.DELETE_EXPIRED_RESERVATIONS, lambda asked: [BATCH]),
}


@pytest.mark.parametrize("generic", [False, True], ids=["custom plan", "generic plan"])
@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_statement_of_admission_reads_a_large_table_whole(
    big_database: BigDatabase, name: str, generic: bool
) -> None:
    statement, arguments = STATEMENTS[name]
    lanes = range(1, big_database.lanes + 1, big_database.lanes // BATCH)
    runs = range(1, big_database.runs + 1, big_database.runs // BATCH)
    asked = Asked([big_database.lane_key(n) for n in lanes[:BATCH]], list(runs[:BATCH]))
    database = await Database.open(big_database.url, max_size=1)
    try:
        async with database.acquire() as connection:
            await connection.execute("begin")
            plan = await plan_of(connection, statement, *arguments(asked), generic=generic)
            await connection.execute("rollback")
    finally:
        await database.close()

    assert plan.scanned_whole == []
    # The expiry of reservations is indexed by block ranges, whose newest is read whole.
    assert plan.most_rows <= (10_000 if name == "delete_expired_reservations" else 4 * BATCH)
