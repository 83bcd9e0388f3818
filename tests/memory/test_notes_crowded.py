"""The bound of 100 live notes under many writers at once, of one conversation and of several."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tests.memory.desk import MemoryDesk
from tests.support.waiting import eventually
from workers.memory.notes import Notes, NoteScope, NotOwner, Receipt, Refused
from workers.operations.retention import Retention
from workers.operations.sweeper import Sweeper
from workers.postgres.database import Database

WRITERS = 50


@pytest.fixture
async def crowd(database_url: str) -> AsyncIterator[MemoryDesk]:
    """A desk whose writers really write at once."""
    db = await Database.open(database_url, max_size=WRITERS)
    yield MemoryDesk(db, Notes(db))
    await db.close()


async def fill(desk: MemoryDesk, scope: NoteScope, number: int) -> None:
    for n in range(number):
        assert isinstance(await desk.notes.set(scope, (0, n), f"k{n:02}", "v"), Receipt)


async def live(desk: MemoryDesk, scope: NoteScope) -> int:
    row = await desk.db.fetchrow("select count(*) from notes where lane_id = $1", scope.lane_id)
    assert row is not None
    return int(row[0])


@pytest.mark.rule("CM-54", "CM-78")
async def test_fifty_writers_of_one_conversation_never_leave_more_than_100(crowd: MemoryDesk) -> None:
    scope = await crowd.a_lane()
    await fill(crowd, scope, 80)

    outcomes = await asyncio.gather(
        *(crowd.notes.set(scope, (1, n), f"late {n}", "v") for n in range(WRITERS))
    )

    assert sum(isinstance(outcome, Receipt) for outcome in outcomes) == 20
    assert outcomes.count(Refused("too_many_notes")) == 30
    assert await live(crowd, scope) == 100
    assert await crowd.count("note_operations") == 100
    kept = await crowd.db.fetch("select key from notes where key like 'k%'")
    assert len(kept) == 80, "nothing was evicted"


@pytest.mark.rule("CM-54")
async def test_fifty_writers_of_five_conversations_fill_each_to_100_without_a_deadlock(
    crowd: MemoryDesk,
) -> None:
    scopes = [await crowd.a_lane() for _ in range(5)]
    for scope in scopes:
        await fill(crowd, scope, 95)

    async def write(number: int) -> None:
        # Each goes round the conversations from another one on, and replaces and removes between.
        for turn in range(5):
            scope = scopes[(number + turn) % 5]
            await crowd.notes.set(scope, (1 + turn, number), f"late {number}", "v", timedelta(hours=1))
            await crowd.notes.set(scope, (10 + turn, number), f"k{number:02}", "replaced")

    await asyncio.gather(*(write(number) for number in range(WRITERS)))

    for scope in scopes:
        assert await live(crowd, scope) == 100
    row = await crowd.db.fetchrow("select count(*) from notes where body = 'replaced'")
    assert row is not None
    assert row[0] == 5 * WRITERS


@pytest.mark.rule("CM-54", "CM-56")
async def test_writers_meet_a_sweep_of_expired_notes_and_the_bound_holds(crowd: MemoryDesk) -> None:
    scope = await crowd.a_lane()
    await fill(crowd, scope, 50)
    for n in range(50):
        await crowd.notes.set(scope, (1, n), f"otp {n}", "1234", timedelta(seconds=5))
    assert await crowd.notes.set(scope, (2, 0), "one more", "v") == Refused("too_many_notes")
    await crowd.move_clock(timedelta(seconds=6))
    sweeper = Sweeper(crowd.db, Retention(), batch=7, rest=0)

    async def renew(n: int) -> object:
        return await crowd.notes.set(scope, (3, n), f"otp {n}", "renewed")

    _, *outcomes = await asyncio.gather(sweeper.prune_memory(), *(renew(n) for n in range(WRITERS)))

    assert all(isinstance(outcome, Receipt) and outcome.created for outcome in outcomes)
    assert await live(crowd, scope) == 100
    row = await crowd.db.fetchrow("select count(*) from notes where body = 'renewed' and expires_at is null")
    assert row is not None
    assert row[0] == 50


@pytest.mark.rule("CM-74", "EN-18")
@pytest.mark.parametrize("change", ["epoch = epoch + 1", "owner_run = null", "generation = generation + 1"])
async def test_an_edit_that_waited_while_its_turn_lost_the_lane_writes_nothing(
    crowd: MemoryDesk, change: str
) -> None:
    scope = await crowd.a_lane()
    await fill(crowd, scope, 1)

    async with crowd.db.transaction() as tx:
        await tx.execute(f"update lanes set {change} where id = $1", scope.lane_id)
        edits = [
            asyncio.create_task(crowd.notes.set(scope, (1, 0), "k00", "late")),
            asyncio.create_task(crowd.notes.remove(scope, (1, 1), "k00")),
        ]
        await eventually("both wait for the lane", lambda: waiting(crowd, 2))

    assert await asyncio.gather(*edits) == [NotOwner(), NotOwner()]
    row = await crowd.db.fetchrow("select body from notes")
    assert row is not None
    assert row["body"] == "v"
    assert await crowd.count("note_operations") == 1


async def waiting(desk: MemoryDesk, number: int) -> Any:
    row = await desk.db.fetchrow(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return row is not None and row[0] == number
