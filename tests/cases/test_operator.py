"""Faults of operators' acts as users met them: the deleted comes back, the living is pruned, pruning never ends."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.event import Event
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event, candidates_of
from tests.support.waiting import eventually
from workers.admission.policy import Duplicate
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.memory.limits import Limits
from workers.operations.conversations import Inspected, delete, inspect, prune
from workers.operations.errors import TurnActive
from workers.operations.pruning import tasks
from workers.operations.quiet import WhenActive
from workers.operations.retention import Retention
from workers.operations.runs import cancel_runs
from workers.operations.sweeper import Sweeper
from workers.postgres.database import Database

MONTH = timedelta(days=30)
KEPT = Retention(conversations=MONTH)
MEMORY = ("items", "notes", "note_operations", "turns", "ready")
TEXT = "a planted word"


async def left_in(desk: Desk, lane_id: int) -> dict[str, int]:
    """Rows of the conversation's own tables, and what is still to be sent."""
    rows = {
        table: int(await desk.value(f"select count(*) from {table} where lane_id = $1", lane_id))
        for table in MEMORY
    }
    unsent = await desk.value(
        "select count(*) from deliveries where lane_id = $1 and finished_at is null", lane_id
    )
    return {table: count for table, count in {**rows, "unsent": int(unsent)}.items() if count}


async def lane_of(desk: Desk, run_id: UUID) -> int:
    return int((await desk.lane_of(run_id))["id"])


async def redeliver(desk: Desk, event: Event) -> list[Any]:
    return list(await desk.admission.admit(candidates_of(desk.agents["echo"], [event])))


class LateWriter:
    """An agent that writes what can be written before and after a moment that the test names."""

    def __init__(self) -> None:
        self.began = 0
        self.refused = 0
        self.go_on = asyncio.Event()
        self.agent: Agent = an_agent(runs=self._run, conversation=True)

    async def _run(self, turn: Turn) -> None:
        await turn.set_note("before", TEXT)
        await turn.reply(TEXT)
        self.began += 1
        await self.go_on.wait()
        try:
            await turn.set_note("after", TEXT)
            await turn.remove_note("before")
            await turn.reply(TEXT)
        except Exception:
            self.refused += 1
            raise


@pytest.mark.rule("CM-63", "CM-64")
@pytest.mark.parametrize("when_active", ["wait", "cancel"])
async def test_pb_61_a_delete_is_confirmed_only_when_no_turn_can_write_any_more(
    database_url: str, when_active: WhenActive
) -> None:
    """langchain-ai/langgraph issue 7206 and pull 7207: a delete removed rows and left no mark, and a delayed writer
    that still held the old configuration made them anew."""
    writer, event = LateWriter(), an_event(chat="c4", text=TEXT)
    async with a_desk(database_url, writer.agent) as desk, desk.running():
        [run_id] = await desk.admit("echo", event)
        await eventually("the turn has written", lambda: writer.began == 1)
        lane_id = await lane_of(desk, run_id)
        with pytest.raises(TurnActive, match=str(run_id)):
            await delete(desk.database, lane_id, "ann")
        assert (await left_in(desk, lane_id))["items"] > 0

        waited_for = list[UUID]()
        deleting = asyncio.create_task(
            delete(desk.database, lane_id, "ann", when_active=when_active, waiting=waited_for.append)
        )
        await eventually("the delete waits", lambda: waited_for)
        if when_active == "wait":
            assert not deleting.done()
            writer.go_on.set()
        first = await deleting
        writer.go_on.set()
        second = await delete(desk.database, lane_id, "ann")
        again = await redeliver(desk, event)
        await desk.loop.idle()

        assert (first.generation, second.generation, writer.began) == (1, 2, 1)
        assert all(isinstance(outcome, Duplicate) for outcome in again)
        assert await left_in(desk, lane_id) == {}
        assert await is_bare(desk, lane_id)


@pytest.mark.rule("CM-63")
async def test_pb_61_a_writer_that_nobody_could_stop_brings_nothing_back(database_url: str) -> None:
    """langchain-ai/langgraph issue 7206: the writer is a worker that was cut off, and goes on after the delete."""
    writer, event = LateWriter(), an_event(chat="c4", text=TEXT)
    lease = timedelta(seconds=2)
    async with (
        a_desk(database_url, writer.agent, lease_for=lease) as cut_off,
        a_desk(database_url, writer.agent, lease_for=lease) as other,
    ):
        [run_id] = await cut_off.admit("echo", event)
        await cut_off.loop.run_once()
        await eventually("the turn has written", lambda: writer.began == 1)
        lane_id = await lane_of(other, run_id)
        await cut_off.lapse()
        await other.recovery.run_once()
        await cancel_runs(other.database, [run_id], "ann")
        done = [await delete(other.database, lane_id, "ann") for _ in range(2)]

        writer.go_on.set()
        await eventually("the late write was refused", lambda: writer.refused == 1)
        await cut_off.loop.idle()
        again = await redeliver(other, event)
        await other.work()

        assert [each.generation for each in done] == [1, 2]
        assert (writer.began, [type(outcome) for outcome in again]) == (1, [Duplicate])
        assert await left_in(other, lane_id) == {}
        assert await is_bare(other, lane_id)
        assert await other.status(run_id) == "cancelled"


async def is_bare(desk: Desk, lane_id: int) -> bool:
    """Whether an operator sees a tombstone and nothing else."""
    found = await inspect(desk.database, lane_id)
    assert isinstance(found, Inspected)
    counts = (found.item_count, found.note_count, found.open_runs, found.open_deliveries)
    return counts == (0, 0, 0, 0) and found.conversation.deleted_at is not None


async def stop_clock(desk: Desk) -> None:
    """`parley_now()` stands still from here on, a second from now."""
    [row] = await desk.rows("select now() + interval '1 second' as at")
    await desk.database.execute(
        "create or replace function parley_now() returns timestamptz language sql stable parallel safe as"
        f" 'select timestamptz ''{row['at'].isoformat()}'''"
    )


async def make_old(desk: Desk, run_id: UUID, age: timedelta) -> int:
    """The run's conversation is so old, with all that it holds."""
    lane_id = await lane_of(desk, run_id)
    for table in ("conversations", "items"):
        await desk.database.execute(
            f"update {table} set created_at = parley_now() - $2::interval where lane_id = $1", lane_id, age
        )
    return lane_id


@pytest.mark.rule("CM-58", "CM-51", "EN-45")
@pytest.mark.parametrize("when", ["before the prune", "while the prune holds it", "while it is admitted"])
async def test_pb_63_pruning_takes_what_is_idle_and_nothing_that_is_or_comes_alive(
    database_url: str, when: str
) -> None:
    """apache/rocketmq-dashboard pull 4852, vellum-ai/vellum-assistant pull 8565, psd401/aistudio pull 1335: a sweep
    chose by age, removed without another look, and a conversation that had come alive between was lost."""
    forever, day = asyncio.Event(), timedelta(days=1)

    async def runs(turn: Turn) -> None:
        if turn.event.text == "streams":
            await forever.wait()

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        idle = await desk.admit("echo", *[an_event(chat=chat) for chat in ("c11", "c12", "c13")])
        await desk.work()
        [streams] = await desk.admit("echo", an_event(chat="c10", text="streams"))
        await desk.loop.run_once()
        await stop_clock(desk)
        c10 = await make_old(desk, streams, MONTH + day)
        _, c12, c13 = [
            await make_old(desk, run_id, age)
            for run_id, age in zip(idle, (MONTH + day, MONTH + day, MONTH), strict=True)
        ]
        come_alive = an_event(chat="c11", text="new")

        if when == "before the prune":
            await desk.admit("echo", come_alive)
            counted, removed = await counted_and_pruned(desk)
        elif when == "while it is admitted":
            async with desk.database.transaction() as tx:
                await desk.admission.admit_in(tx, candidates_of(desk.agents["echo"], [come_alive]))
                counted, removed = await counted_and_pruned(desk)
        else:
            counted, removed = {}, await pruned_while_admitting(desk, come_alive)

        assert counted in ({}, removed)
        lanes = {row["lane_id"] for row in await desk.rows("select lane_id from conversations")}
        assert {c10, c13} <= lanes
        assert c12 not in lanes
        # Its items are at their retention to the second: they are recalled no more, and gone. Its own row stays.
        left = await desk.rows("select lane_id, body from items order by lane_id")
        assert [row["lane_id"] for row in left] == [c10]
        assert await desk.status(streams) == "running"
        forever.set()
        await desk.work()
        answered = await desk.value("select status from runs where event_id = $1", come_alive.event_id)
        kept = await desk.rows(
            "select i.body from items i join conversations c using (lane_id) where c.chat = 'c11'"
        )
        assert (answered, [row["body"] for row in kept]) == ("succeeded", ["new"])


async def counted_and_pruned(desk: Desk) -> tuple[dict[str, int], dict[str, int]]:
    """What a dry run lists, which changes nothing, and what the prune then removes.

    Conversations are listed once their items are gone: a dry run does not count what one task frees for the next.
    """
    await prune(desk.database, Retention(), "ann", limits=Limits())
    # The clock stands still: a lease that was given back would run out at this very moment.
    await desk.database.execute("delete from leases")
    before = await desk.rows("select c::text as row from conversations c order by lane_id")
    counted = await prune(desk.database, KEPT, "ann", limits=Limits(), dry_run=True)
    assert await desk.rows("select c::text as row from conversations c order by lane_id") == before
    removed = await prune(desk.database, KEPT, "ann", limits=Limits())
    assert removed["conversations"] > 0
    return counted, removed


async def pruned_while_admitting(desk: Desk, event: Event) -> dict[str, int]:
    """The event comes when the prune has chosen its conversation and has not committed yet."""
    steps = {task.name: task for task in tasks(KEPT, limits=Limits())}
    removed: Counter[str] = Counter()
    async with desk.database.transaction() as tx:
        removed.update((await steps["items"].step(tx, steps["items"].start)).removed)
    async with desk.database.transaction() as tx:
        removed.update((await steps["conversations"].step(tx, steps["conversations"].start)).removed)
        admitting = asyncio.create_task(desk.admit("echo", event))
        await eventually("the admission waits", lambda: _somebody_waits(desk))
    await admitting
    return dict(removed)


async def _somebody_waits(desk: Desk) -> bool:
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    return bool(await desk.value(waiting))


ROWS, BOUND = 10_000, timedelta(seconds=1)
BACKLOG = """
    insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes, created_at)
    select $1, 0, 'input', 'accepted', gen_random_uuid(), 'e' || n, 'text', 4, parley_now() - interval '31 days'
      from generate_series(1, $2::int) n
"""


@pytest.mark.rule("CM-58", "EN-45")
async def test_pb_64_a_backlog_goes_batch_by_batch_beside_live_turns_and_an_interruption_loses_none(
    database_url: str,
) -> None:
    """oban-bg/oban issue 92, bensheldon/good_job issue 933, smartcontractkit/chainlink pull 6179: one huge delete ran
    into the statement timeout, was rolled back, and did the same the next time."""
    batches: list[int] = []
    answered = 0

    async def quick(turn: Turn) -> None:
        nonlocal answered
        answered += 1

    agent = an_agent(runs=quick, conversation=True)
    pruner = await Database.open(database_url, max_size=2, statement_timeout=BOUND)
    try:
        async with a_desk(database_url, agent) as desk:
            [run_id] = await desk.admit("echo", an_event(chat="c"))
            await desk.work()
            lane_id = await lane_of(desk, run_id)
            await desk.database.execute(BACKLOG, lane_id, ROWS)
            await slow_removal(desk)
            with pytest.raises(Exception, match="statement timeout"):
                await pruner.execute("delete from items where created_at < parley_now() - interval '30 days'")

            async with desk.running(), live_traffic(desk):
                first = asyncio.create_task(pruned_round_by_round(pruner, batches.append))
                await eventually("some batches are done", lambda: len(batches) >= 2)
                first.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await first
                # An interrupted prune gives its lease back, and where it cannot, the lease runs out.
                await desk.database.execute("update leases set until = parley_now()")
                so_far = answered
                left = await desk.value("select count(*) from items where body = 'text'")
                removed = [await pruned(pruner, batches.append)]

                async def pruned_again() -> bool:
                    removed.append(await pruned(pruner, batches.append))
                    return not await desk.value("select count(*) from items where body = 'text'")

                await eventually("all of it is gone", pruned_again)

            assert 0 < left < ROWS
            assert sum(removed) > 0
            assert max(batches) <= 1000
            assert answered > so_far > 0
    finally:
        await pruner.close()


async def slow_removal(desk: Desk) -> None:
    """Each removed row costs a little, as in a table that is far larger than memory."""
    await desk.database.execute(
        "create function cost_time() returns trigger language plpgsql as"
        " $$ begin perform pg_sleep(0.0002); return old; end $$"
    )
    await desk.database.execute(
        "create trigger costly before delete on items for each row execute function cost_time()"
    )


async def pruned(database: Database, note: Callable[[int], None]) -> int:
    """How many items one prune removes; `note` is told of each batch."""
    sweeper = Sweeper(database, Retention(), limits=Limits(), pruned=lambda table, rows: note(rows), rest=0)
    return (await sweeper.prune_memory())["items"]


async def pruned_round_by_round(database: Database, note: Callable[[int], None]) -> None:
    """Until it is cancelled: what a claim of the conversation holds at a round's moment waits for the next one."""
    while True:
        await pruned(database, note)


@contextlib.asynccontextmanager
async def live_traffic(desk: Desk) -> Any:
    """Twenty events a second, in the conversation that is pruned and beside it; none may wait for a second."""
    over, slowest = asyncio.Event(), 0.0

    async def talk() -> None:
        nonlocal slowest
        number = 0
        while not over.is_set():
            number += 1
            started = time.monotonic()
            await desk.admit("echo", an_event(chat="c" if number % 2 else f"c{number}"))
            slowest = max(slowest, time.monotonic() - started)
            await asyncio.sleep(0.05)

    talking = asyncio.create_task(talk())
    try:
        yield
    finally:
        over.set()
        await talking
    assert slowest < 1
