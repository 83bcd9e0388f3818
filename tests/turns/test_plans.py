"""The statements of the claim and the settlement read a handful of rows, however many lanes and runs there are."""

import uuid
from datetime import timedelta

import pytest

from tests.support.big_tables import BigDatabase, Plan, plan_of
from workers.postgres.database import Database
from workers.turns import recovery, store

AGENTS = [f"agent-{n}" for n in range(10)]
BATCH = 64
BIG = {"lanes", "runs", "ready", "turns", "deliveries", "items", "conversations"}


async def planned(
    big: BigDatabase, statement: str, *arguments: object, generic: bool, owned: int = 0
) -> Plan:
    """The plan, in a transaction that is rolled back, where `owned` lanes have an active turn."""
    database = await Database.open(big.url)
    try:
        async with database.transaction() as tx:
            if owned:
                await tx.execute(
                    "with taken as (update lanes l set owner_run = r.id, epoch = 1 from runs r"
                    " where r.lane_id = l.id and l.id <= $1 returning l.id, l.owner_run)"
                    " insert into turns (lane_id, run_id, epoch, session_id)"
                    " select id, owner_run, 1, $2 from taken",
                    owned,
                    SESSION,
                )
            found = await plan_of(tx, statement, *arguments, generic=generic)
            raise _RollBack
    except _RollBack:
        return found
    finally:
        await database.close()


class _RollBack(Exception):
    pass


SESSION = uuid.UUID(int=7)
LANES = list(range(1, BATCH + 1))


def reads_little(plan: Plan, most_rows: int) -> None:
    assert not BIG & set(plan.scanned_whole)
    assert plan.most_rows <= most_rows, [
        (
            node["Node Type"],
            node.get("Relation Name"),
            node["Actual Rows"],
            node["Actual Loops"],
            node.get("Index Cond"),
        )
        for node in plan.nodes
    ]


@pytest.mark.rule("EN-15")
@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("after", [("", ""), ("agent-5", "lab/account-25")])
async def test_ready_lanes_are_found_by_a_walk_of_the_index(
    big_database: BigDatabase, generic: bool, after: tuple[str, str]
) -> None:
    plan = await planned(
        big_database,
        store.FIND_READY,
        AGENTS,
        *after,
        64,
        BATCH,
        2 * BATCH,
        ["lab/account-1"],
        [],
        generic=generic,
    )

    reads_little(plan, 64 * 4 * BATCH)


@pytest.mark.rule("EN-16")
@pytest.mark.parametrize("generic", [False, True])
async def test_heads_are_read_by_their_lanes(big_database: BigDatabase, generic: bool) -> None:
    plan = await planned(big_database, store.READ_HEADS, LANES, timedelta(seconds=2), generic=generic)

    reads_little(plan, 4 * BATCH)


@pytest.mark.rule("EN-16")
@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("statement", ["LOCK_LANES", "LOCK_READY_LANES"])
async def test_lanes_are_locked_by_their_key(
    big_database: BigDatabase, generic: bool, statement: str
) -> None:
    session = [SESSION] if statement == "LOCK_READY_LANES" else []

    reads_little(
        await planned(big_database, getattr(store, statement), LANES, *session, generic=generic), 4 * BATCH
    )


@pytest.mark.rule("EN-18")
@pytest.mark.parametrize("generic", [False, True])
async def test_owned_lanes_are_locked_by_their_key(big_database: BigDatabase, generic: bool) -> None:
    runs = [uuid.uuid4() for _ in LANES]

    plan = await planned(
        big_database, store.LOCK_OWNED, LANES, runs, [1] * BATCH, generic=generic, owned=BATCH
    )

    reads_little(plan, 4 * BATCH)


@pytest.mark.rule("EN-24")
@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("statement", ["MARK_NEXT_READY", "REQUEUE_LANES"])
async def test_next_heads_are_found_by_their_lanes(
    big_database: BigDatabase, generic: bool, statement: str
) -> None:
    wait = [timedelta(seconds=2)] if statement == "MARK_NEXT_READY" else []

    reads_little(
        await planned(big_database, getattr(store, statement), LANES, *wait, generic=generic), 4 * BATCH
    )


@pytest.mark.rule("EN-16")
@pytest.mark.parametrize("generic", [False, True])
async def test_turns_are_taken_and_settled_by_their_lanes(big_database: BigDatabase, generic: bool) -> None:
    runs = [uuid.uuid4() for _ in LANES]
    nothing = [None] * BATCH
    took = await planned(
        big_database, store.TAKE_LANES, LANES, runs, nothing, nothing, SESSION, generic=generic
    )
    settled = await planned(
        big_database,
        store.SETTLE_RUNS,
        LANES,
        runs,
        ["succeeded"] * BATCH,
        nothing,
        nothing,
        generic=generic,
        owned=BATCH,
    )

    reads_little(took, 4 * BATCH)
    reads_little(settled, 4 * BATCH)


@pytest.mark.rule("EN-24")
@pytest.mark.parametrize("generic", [False, True])
async def test_a_sweep_looks_at_a_stretch_and_not_at_everything(
    big_database: BigDatabase, generic: bool
) -> None:
    plan = await planned(big_database, recovery.FIND_UNQUEUED_LANES, 0, 500, generic=generic, owned=100)

    reads_little(plan, 4 * 500)


@pytest.mark.rule("EN-17")
@pytest.mark.parametrize("generic", [False, True])
async def test_a_dead_sessions_turns_are_found_by_the_session(
    big_database: BigDatabase, generic: bool
) -> None:
    lock = await planned(big_database, store.LOCK_SESSION_LANES, SESSION, generic=generic, owned=BATCH)
    read = await planned(big_database, store.READ_SESSION_TURNS, SESSION, LANES, generic=generic, owned=BATCH)

    # Rolled back turns of the tests before are still in the index.
    reads_little(lock, 40 * BATCH)
    reads_little(read, 40 * BATCH)
