"""Pruning conversation memory: what its limits have let go leaves in small batches, what a turn still needs stays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from schemas.run import RunStatus, new_uuid7
from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk, allow
from tests.support.events import an_agent, an_event
from tests.support.turn_worker import NOBODY_LISTENS
from tests.support.waiting import eventually
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.kafka.settings import KafkaSettings
from workers.memory.limits import Conversations, Limits
from workers.memory.notes import Notes, NoteScope, Receipt
from workers.operations.pruning import MEMORY, Task, tasks
from workers.operations.retention import Retention
from workers.operations.sweeper import Sweeper
from workers.postgres.database import Database
from workers.postgres.sql import load
from workers.roles.settings import Settings
from workers.roles.worker import Worker

LIMITS = Limits(max_stored_items=10)
MONTH = Limits().retention
LONG = timedelta(days=500)
LEASE = timedelta(seconds=2)
NOTE_WRITE = load("workers.memory", "write_note")


async def remembers(turn: Turn) -> None:
    """Writes a note whose key is what was said."""
    await turn.set_note(turn.event.text, "v")


def rememberer(**changes: Any) -> Agent:
    return an_agent(**{"runs": remembers, "conversation": True, **changes})


async def items_in(desk: Desk, run_id: UUID, number: int, generation: int = 0) -> None:
    """So many inputs in the run's conversation, of runs that ended."""
    await desk.database.execute(
        "insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes, created_at)"
        " select r.lane_id, $3::int, 'input', 'accepted', gen_random_uuid(), 'e' || $3::int || '-' || n, 'text ' || n,"
        " 6, parley_now() from runs r, generate_series(1, $2::int) n where r.id = $1",
        run_id,
        number,
        generation,
    )


async def texts(desk: Desk, generation: int = 0) -> list[str]:
    rows = await desk.rows("select body from items where generation = $1 order by id", generation)
    return [row["body"] for row in rows]


def the_task(name: str, **changes: int) -> Task:
    [task] = [each for each in tasks(Retention(), limits=LIMITS, **changes) if each.name == name]
    return task


@pytest.mark.rule("CM-46", "CM-58")
async def test_prune_removes_history_at_the_apps_retention_whatever_its_generation(database_url: str) -> None:
    async with a_desk(database_url, rememberer()) as desk:
        [old, young] = await desk.admit("echo", an_event(text="old"), an_event(text="young"))
        await desk.work()
        await items_in(desk, old, 3)
        await desk.database.execute("update lanes set generation = 2 where id = 1")
        await items_in(desk, old, 4, generation=2)
        await shift_clock(desk.database, MONTH - timedelta(minutes=1))
        await items_in(desk, young, 2)
        sweeper = Sweeper(desk.database, Retention(), limits=Limits(), rest=0)

        early = await sweeper.prune_memory()
        await shift_clock(desk.database, timedelta(minutes=2))
        removed = await sweeper.prune_memory()

        assert (early["items"], removed["items"]) == (0, 4 + 1 + 4)
        assert await texts(desk) == ["text 1", "text 2"]


@pytest.mark.rule("CM-51", "CM-58")
async def test_prune_keeps_the_newest_items_of_each_generation(database_url: str) -> None:
    async with a_desk(database_url, rememberer()) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.work()
        await items_in(desk, run_id, 13)
        await desk.database.execute("update lanes set generation = 1")
        await items_in(desk, run_id, 11, generation=1)

        counted = await Sweeper(desk.database, Retention(), limits=LIMITS).prune_memory(dry_run=True)
        removed = await Sweeper(desk.database, Retention(), limits=LIMITS, rest=0).prune_memory()
        again = await Sweeper(desk.database, Retention(), limits=LIMITS, rest=0).prune_memory()

        assert counted["items"] == removed["items"] == 4 + 1
        assert again["items"] == 0
        assert await texts(desk) == [f"text {n}" for n in range(4, 14)]
        assert await texts(desk, generation=1) == [f"text {n}" for n in range(2, 12)]


@pytest.mark.rule("CM-51", "CM-58")
async def test_records_of_an_active_turn_stay_at_any_age_and_number(database_url: str) -> None:
    async with a_desk(database_url, rememberer(runs=waits_forever)) as desk:
        [run_id] = await desk.admit("echo", an_event(text="mine"))
        await desk.loop.run_once()
        await items_in(desk, run_id, 12)
        await desk.database.execute("update items set run_id = $1 where event_id in ('e0-1', 'e0-2')", run_id)
        await shift_clock(desk.database, LONG)

        await Sweeper(desk.database, Retention(), limits=LIMITS, rest=0).prune_memory()

        assert await texts(desk) == ["mine", "text 1", "text 2"]


async def waits_forever(turn: Turn) -> None:
    await turn.set_note("k", "v")
    await asyncio.Event().wait()


@pytest.mark.rule("CM-59", "CM-58")
async def test_receipts_go_with_the_end_of_their_run_and_not_before(database_url: str) -> None:
    lives: list[UUID] = []

    async def once_then_dies(turn: Turn) -> None:
        async def edit() -> None:
            await turn.set_note("k", f"life {len(lives)}")
            lives.append(turn.run_id)
            if turn.event.text == "crashes" and len(lives) == 2:
                await asyncio.Event().wait()

        await turn.step("edit", edit)

    agent = rememberer(runs=once_then_dies)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        [done] = await one.admit("echo", an_event(text="ends"))
        await one.work()
        [open_run] = await one.admit("echo", an_event(text="crashes"))
        await one.loop.run_once()
        await eventually("it has edited", lambda: len(lives) == 2)
        await one.lapse()
        await two.recovery.run_once()
        assert await two.status(open_run) == "interrupted"
        await shift_clock(two.database, LONG)

        removed = await Sweeper(two.database, Retention(), limits=Limits(), rest=0).prune_memory()

        assert removed["note_operations"] == 1
        assert [row["run_id"] for row in await two.rows("select run_id from note_operations")] == [open_run]
        await two.work()
        assert (await two.status(open_run), len(lives)) == ("succeeded", 3)
        bodies = await two.rows(
            "select n.body from notes n join runs r on r.lane_id = n.lane_id where r.id = $1", open_run
        )
        assert [row["body"] for row in bodies] == ["life 1"]
        assert (await Sweeper(two.database, Retention(), rest=0).prune_memory())["note_operations"] == 1
        assert done != open_run


@asynccontextmanager
async def runs_renamed(database: Database) -> AsyncIterator[None]:
    await database.execute("alter table runs rename to runs_elsewhere")
    yield
    await database.execute("alter table runs_elsewhere rename to runs")


@asynccontextmanager
async def runs_locked(database: Database) -> AsyncIterator[None]:
    async with database.transaction() as tx:
        await tx.execute("lock table runs in access exclusive mode")
        yield


@pytest.mark.rule("CM-59")
@pytest.mark.parametrize(
    ("broken", "error"),
    [(runs_renamed, asyncpg.UndefinedTableError), (runs_locked, asyncpg.LockNotAvailableError)],
)
async def test_a_look_at_the_runs_that_fails_keeps_their_receipts_and_is_raised(
    database_url: str, broken: object, error: type[Exception]
) -> None:
    async with a_desk(database_url, rememberer(), lock_timeout=timedelta(milliseconds=200)) as desk:
        await desk.admit("echo", an_event(), an_event())
        await desk.work()
        sweeper = Sweeper(desk.database, Retention(), limits=LIMITS, rest=0)

        async with broken(desk.database):  # type: ignore[operator]
            with pytest.raises(error):
                await sweeper.prune_memory()

        assert await desk.value("select count(*) from note_operations") == 2
        assert (await sweeper.prune_memory())["note_operations"] == 2


@pytest.mark.rule("CM-59")
async def test_a_receipt_of_a_run_that_is_not_known_stays(database_url: str) -> None:
    async with a_desk(database_url, rememberer()) as desk:
        await desk.admit("echo", an_event())
        await desk.work()
        await desk.database.execute("update note_operations set run_id = $1", new_uuid7())

        assert (await Sweeper(desk.database, Retention(), rest=0).prune_memory())["note_operations"] == 0


@pytest.mark.rule("CM-56", "CM-58")
async def test_a_note_that_is_renewed_while_it_is_swept_stays(database_url: str) -> None:
    async with a_desk(database_url, rememberer()) as desk:
        [run_id] = await desk.admit("echo", an_event(text="k"))
        await desk.work()
        lane_id = (await desk.lane_of(run_id))["id"]
        await desk.database.execute("update notes set expires_at = parley_now() + interval '1 hour'")

        async with desk.database.transaction() as tx:
            await tx.execute(NOTE_WRITE, lane_id, 0, "k", "renewed", 7, None)
            await shift_clock(desk.database, timedelta(hours=2))
            pruning = asyncio.create_task(Sweeper(desk.database, Retention(), rest=0).prune_memory())
            removed = await asyncio.wait_for(pruning, 5)

        assert removed["notes"] == 0
        assert await desk.value("select body from notes") == "renewed"
        assert (await Sweeper(desk.database, Retention(), rest=0).prune_memory())["notes"] == 0


@pytest.mark.rule("CM-58")
@pytest.mark.parametrize("name", sorted(MEMORY - {"conversations"}))
async def test_a_batch_that_is_not_committed_yet_keeps_no_turn_waiting(database_url: str, name: str) -> None:
    async with a_desk(
        database_url,
        rememberer(),
        limits=Limits(max_stored_items=10),
        lock_timeout=timedelta(milliseconds=500),
    ) as desk:
        [run_id] = await desk.admit("echo", an_event(chat="c", text="old"))
        await desk.work()
        await items_in(desk, run_id, 13)
        await desk.database.execute("update notes set expires_at = parley_now()")
        task = the_task(name)

        async with desk.database.transaction() as tx:
            removed = (await task.step(tx, task.start)).removed
            [beside] = await desk.admit("echo", an_event(chat="c", text="new"))
            await desk.loop.run_once()
            await asyncio.wait_for(desk.loop.idle(), 5)
            status = await desk.status(beside)

        assert sum(removed.values()) > 0
        assert status == "succeeded"


@pytest.mark.rule("CM-58")
async def test_pruning_passes_over_what_a_turn_holds(database_url: str) -> None:
    async with a_desk(database_url, rememberer()) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.work()
        await items_in(desk, run_id, 14)
        sweeper = Sweeper(desk.database, Retention(), limits=LIMITS, rest=0)

        async with desk.database.transaction() as tx:
            await tx.execute("select from lanes for no key update")
            await tx.execute("update items set status = 'withheld' where event_id in ('e0-1', 'e0-2')")
            removed = await asyncio.wait_for(sweeper.prune_memory(), 5)

        assert removed["items"] == 3
        assert (await sweeper.prune_memory())["items"] == 2
        assert len(await texts(desk)) == 10


@pytest.mark.rule("CM-58")
async def test_a_backlog_of_items_and_receipts_goes_in_bounded_batches(database_url: str) -> None:
    sizes: dict[str, list[int]] = {}
    async with a_desk(database_url, rememberer()) as desk:
        runs = await desk.admit("echo", *(an_event() for _ in range(7)))
        await desk.work()
        for run_id in runs:
            await items_in(desk, run_id, 40)
        await shift_clock(desk.database, MONTH + timedelta(days=1))
        sweeper = Sweeper(
            desk.database,
            Retention(),
            limits=Limits(),
            pruned=lambda table, rows: sizes.setdefault(table, []).append(rows),
            batch=3,
            rest=0,
        )

        removed = await sweeper.prune_memory()

        assert (removed["items"], removed["note_operations"]) == (7 * 41, 7)
        assert max(sizes["items"]) == 3
        assert sizes["note_operations"] == [3, 3, 1]
        assert await desk.value("select count(*) from runs") == 7


@pytest.mark.rule("CM-58")
async def test_what_would_go_is_counted_whole_and_stays(database_url: str) -> None:
    async with a_desk(database_url, rememberer()) as desk:
        runs = await desk.admit("echo", *(an_event() for _ in range(7)))
        await desk.work()
        for run_id in runs:
            await items_in(desk, run_id, 130)
        await desk.database.execute("update notes set expires_at = parley_now() + interval '1 hour'")
        await shift_clock(desk.database, MONTH + timedelta(days=1))
        sweeper = Sweeper(desk.database, Retention(), limits=Limits(), batch=3, rest=0)

        counted = await sweeper.prune_memory(dry_run=True)

        assert counted == {"notes": 7, "note_operations": 7, "items": 7 * 131}
        assert len(await texts(desk)) == 7 * 131
        assert await sweeper.prune_memory() == counted


@pytest.mark.rule("CM-59", "CM-74")
async def test_an_edit_and_the_pruning_of_receipts_at_once_leave_both_right(database_url: str) -> None:
    database = await Database.open(database_url, max_size=6)
    try:
        async with a_desk(database_url, rememberer(runs=waits_forever)) as desk:
            [run_id] = await desk.admit("echo", an_event())
            await desk.loop.run_once()
            lane = await desk.lane_of(run_id)
            scope, notes = NoteScope(lane["id"], 0, lane["epoch"], run_id), Notes(database)
            sweeper = Sweeper(database, Retention(), limits=LIMITS, rest=0)

            async def prune_on() -> None:
                while True:
                    await sweeper.prune_memory()

            pruning = asyncio.create_task(prune_on())
            firsts = [await notes.set(scope, (9, n), f"k{n}", "first") for n in range(20)]
            seconds = [await notes.set(scope, (9, n), f"k{n}", "second") for n in range(20)]
            pruning.cancel()
            await asyncio.gather(pruning, return_exceptions=True)

            assert all(isinstance(first, Receipt) for first in firsts)
            assert seconds == firsts
            assert await desk.value("select count(*) from notes where body = 'second'") == 0
    finally:
        await database.close()


@pytest.mark.rule("CM-58", "CM-46")
async def test_a_new_turn_trims_expired_history_of_its_own_conversation(database_url: str) -> None:
    async with a_desk(database_url, rememberer()) as desk:
        [run_id, other] = await desk.admit("echo", an_event(chat="c", text="one"), an_event(text="other"))
        await desk.work()
        await items_in(desk, run_id, 3)
        await shift_clock(desk.database, MONTH)
        await items_in(desk, other, 1)
        epochs = set()

        for text in ("two", "three"):
            [beside] = await desk.admit("echo", an_event(chat="c", text=text))
            await desk.work()
            epochs.add((await desk.lane_of(beside))["epoch"] % 16)

        assert 0 not in epochs, "these are no turns at which surplus items are looked for"
        assert await texts(desk) == ["other", "text 1", "two", "three"]


@pytest.mark.rule("CM-59", "CM-58")
@pytest.mark.parametrize("status", [each.value for each in RunStatus])
async def test_receipts_stay_in_every_status_that_may_run_again(database_url: str, status: str) -> None:
    ended = status in {"succeeded", "failed", "cancelled", "joined", "rejected"}
    async with a_desk(database_url, rememberer()) as desk:
        await desk.admit("echo", an_event())
        await desk.work()
        await desk.database.execute(
            "update runs set status = $1, finished_at = case when $2 then finished_at end", status, ended
        )
        await shift_clock(desk.database, LONG)

        removed = await Sweeper(desk.database, Retention(), limits=LIMITS, rest=0).prune_memory()

        assert removed["note_operations"] == (1 if ended else 0)


@pytest.mark.rule("CM-58", "CM-46")
async def test_the_sweeper_role_keeps_to_the_limits_of_its_app(database_url: str) -> None:
    limits = Limits(retention=timedelta(days=3), max_stored_items=4)
    async with a_desk(database_url, rememberer()) as desk:
        [old, busy] = await desk.admit("echo", an_event(text="old"), an_event(text="busy"))
        await desk.work()
        await items_in(desk, busy, 6)
        await desk.database.execute(
            "update items set created_at = parley_now() - interval '4 days' where run_id = $1", old
        )
        app = App(
            "app", agents=[rememberer()], channels=[LabChannel()], conversations=Conversations(allow, limits)
        )
        settings = Settings(
            database_url, KafkaSettings(bootstrap=NOBODY_LISTENS), roles=frozenset({"sweeper"}), http_port=0
        )
        worker = Worker(app, settings)
        await worker.start()
        try:
            await eventually("it has swept", lambda: swept(desk))
        finally:
            await worker.drain()

        assert await texts(desk) == [f"text {n}" for n in range(3, 7)]


async def swept(desk: Desk) -> Any:
    return await desk.value("select finished_at from leases")
