"""Every table lets go of what its retention has ended, in batches, and of nothing that is open."""

import asyncio
import uuid
from datetime import timedelta

import pytest

from tests.support.delivery import a_conversation as a_bare_conversation
from tests.support.delivery import a_reply, pass_time
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from workers.agents.turn import Turn
from workers.delivery.journal import journal
from workers.operations.errors import ActRefused
from workers.operations.pruning import tasks
from workers.operations.retention import SETTINGS, UNAGEING, Retention
from workers.operations.sweeper import LEASE_FOR, Sweeper
from workers.postgres.database import Database

LONG = timedelta(days=500)
EVERYTHING = Retention(conversations=timedelta(days=60))
TABLES = "select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'"


async def replies_and_notes(turn: Turn) -> None:
    await turn.reply(turn.event.text)
    if turn.has_conversation:
        await turn.set_note("k", "v", expires_in=timedelta(days=1))


def agents() -> list[object]:
    return [
        an_agent("bound", runs=replies_and_notes, conversation=True),
        an_agent("keyed", runs=replies_and_notes, concurrency_key=lambda event: event.chat),
        an_agent("free", runs=replies_and_notes),
    ]


async def a_history(desk: Desk, events: int = 2) -> None:
    """Turns of every kind that ended, with replies that were sent, and a row of everything else."""
    for agent in desk.agents:
        await desk.admit(agent, *(an_event(chat=f"c{n}", text=f"m{n}") for n in range(events)))
    await desk.work()
    await desk.database.execute("update deliveries set state = 'sent', finished_at = parley_now()")
    await desk.database.execute("update items set status = 'sent' where kind = 'reply'")
    for statement in (
        "insert into delivery_attempts (delivery_id, attempt, kind, outcome)"
        " select id, 1, 'send', 'sent' from deliveries",
        "insert into mailbox (channel, account, chat, key, direction, body) values ('web', 'a', 'c', 'k', 'in', 'hi')",
        "insert into audit (actor, act, subject) values ('ann', 'x', 'y')",
        "insert into send_holds values ('lab', 'a', now(), 'asked')",
        "insert into worker_sessions (id, worker, lease_until, ended_at)"
        " values ('01890000-0000-7000-8000-000000000000', 'w', now(), now())",
    ):
        await desk.database.execute(statement)


async def counts(desk: Desk) -> dict[str, int]:
    return {
        row["table_name"]: await desk.value(f"select count(*) from {row['table_name']}")
        for row in await desk.rows(TABLES)
        if row["table_name"] != "alembic_version"
    }


@pytest.mark.rule("EN-45")
async def test_every_table_has_a_setting_that_lets_it_go(database_url: str) -> None:
    async with a_desk(database_url, *agents()) as desk:  # type: ignore[arg-type]
        await a_history(desk)
        before = await counts(desk)
        assert set(before) == set(SETTINGS) | UNAGEING
        assert {table for table, rows in before.items() if rows == 0} == UNAGEING

        await pass_time(desk.database, LONG)
        removed = await Sweeper(desk.database, EVERYTHING, rest=0).prune()

        # The session of this desk lives.
        assert {table: rows for table, rows in (await counts(desk)).items() if rows} == {
            "leases": 1,
            "worker_sessions": 1,
        }
        assert {t: n for t, n in removed.items() if n} == {
            table: rows - (table == "worker_sessions") for table, rows in before.items() if table in SETTINGS
        }


@pytest.mark.rule("EN-45")
async def test_transcripts_stay_where_their_pruning_is_not_enabled(database_url: str) -> None:
    async with a_desk(database_url, *agents()) as desk:  # type: ignore[arg-type]
        await a_history(desk)
        items = await desk.value("select count(*) from items")
        await pass_time(desk.database, LONG)

        await Sweeper(desk.database, Retention(), rest=0).prune()

        assert await desk.value("select count(*) from items") == items > 0
        assert await desk.value("select count(*) from lanes") == await desk.value(
            "select count(*) from conversations"
        )


@pytest.mark.rule("EN-45")
async def test_a_dry_run_counts_what_would_go_and_removes_nothing(database_url: str) -> None:
    async with a_desk(database_url, *agents()) as desk:  # type: ignore[arg-type]
        await a_history(desk)
        await pass_time(desk.database, LONG)
        before = await counts(desk)

        counted = await Sweeper(desk.database, EVERYTHING, batch=2, rest=0).prune(dry_run=True)

        assert await counts(desk) == before
        # Runs wait for their reservations, which a dry run does not remove.
        assert (counted["reservations"], counted.get("runs", 0)) == (6, 0)
        await desk.database.execute("delete from reservations")
        counted = await Sweeper(desk.database, EVERYTHING, batch=2, rest=0).prune(dry_run=True)
        removed = await Sweeper(desk.database, EVERYTHING, batch=2, rest=0).prune()
        assert {t: n for t, n in counted.items() if t in ("runs", "deliveries", "items", "mailbox")} == {
            t: n for t, n in removed.items() if t in ("runs", "deliveries", "items", "mailbox")
        }


@pytest.mark.rule("EN-45", "EN-10")
async def test_nothing_open_goes_and_no_run_before_its_reservation(database_url: str) -> None:
    async with a_desk(database_url, *agents()) as desk:  # type: ignore[arg-type]
        await a_history(desk, events=1)
        [unsent, reserved, *_] = [row["id"] for row in await desk.rows("select id from runs order by id")]
        await desk.database.execute(
            "update deliveries set state = 'uncertain', finished_at = null where run_id = $1", unsent
        )
        [queued] = await desk.admit("keyed", an_event(chat="c0", text="again"))
        await pass_time(desk.database, LONG)
        await desk.database.execute(
            "update reservations set expires_at = parley_now() + interval '1 day' where run_id = $1", reserved
        )

        await Sweeper(desk.database, EVERYTHING, rest=0).prune()

        left = {row["id"] for row in await desk.rows("select id from runs")}
        assert left == {unsent, reserved, queued}
        assert await desk.value("select count(*) from deliveries where run_id = $1", unsent) == 1
        assert (
            await desk.value(
                "select count(*) from deliveries d left join addresses a on a.id = d.address_id where a.id is null"
            )
            == 0
        )
        assert (
            await desk.value(
                "select count(*) from runs r left join lanes l on l.id = r.lane_id"
                " where l.id is null and r.finished_at is null"
            )
            == 0
        )
        await desk.work()
        assert await desk.status(queued) == "succeeded"


@pytest.mark.rule("EN-45")
async def test_a_backlog_goes_in_batches(database_url: str) -> None:
    async with a_desk(database_url, *agents()) as desk:  # type: ignore[arg-type]
        await a_history(desk, events=35)
        await pass_time(desk.database, LONG)
        sizes: list[int] = []

        def pruned(table: str, rows: int) -> None:
            if table == "runs":
                sizes.append(rows)

        await Sweeper(desk.database, EVERYTHING, pruned=pruned, batch=20, rest=0).prune()

        assert sizes == [20, 20, 20, 20, 20, 5]


@pytest.mark.rule("EN-45")
async def test_one_process_sweeps_at_a_time_and_another_follows_one_that_died(database_url: str) -> None:
    database = await Database.open(database_url, max_size=2)
    try:
        dead, other = Sweeper(database, EVERYTHING), Sweeper(database, EVERYTHING)
        assert await dead._take()
        with pytest.raises(ActRefused, match="another process sweeps"):
            await other.prune()

        await pass_time(database, LEASE_FOR + timedelta(seconds=1))

        await other.prune()
        row = await database.fetchrow("select finished_at = parley_now() as now, until from leases")
        assert row is not None
        await Sweeper(database, EVERYTHING).prune()
    finally:
        await database.close()


@pytest.mark.rule("EN-45")
async def test_an_address_that_is_written_to_while_it_is_pruned_is_not_lost(database_url: str) -> None:
    database = await Database.open(database_url, max_size=4)
    try:
        conversation = await a_bare_conversation(database)
        async with database.transaction() as tx:
            await journal(tx, a_reply(conversation, "old"))
        await database.execute("delete from deliveries")
        await pass_time(database, LONG)
        [step] = [task.step for task in tasks(EVERYTHING) if task.name == "addresses"]
        later = await a_bare_conversation(database)

        async def prune() -> int:
            async with database.transaction() as tx:
                return (await step(tx, 0)).removed["addresses"]

        async with database.transaction() as tx:
            [address] = await journal(tx, a_reply(later, "new"))
            pruning = asyncio.create_task(prune())
            await asyncio.sleep(0.2)
        assert await pruning == 0
        row = await database.fetchrow("select count(*) as n from addresses where id = $1", address)
        assert row is not None
        assert row["n"] == 1

        # And the other way round: it is gone, and made again.
        await database.execute("delete from deliveries")
        await pass_time(database, LONG)
        async with database.transaction() as tx:
            assert (await step(tx, 0)).removed["addresses"] == 1

            async def write() -> int:
                async with database.transaction() as other:
                    [made] = await journal(other, a_reply(later, "newer", step=1))
                return made

            writing = asyncio.create_task(write())
            await asyncio.sleep(0.2)
        assert await writing != address
    finally:
        await database.close()


@pytest.mark.rule("EN-45")
async def test_a_lane_that_is_pruned_while_an_event_is_admitted_to_it_is_made_again(
    database_url: str,
) -> None:
    async with a_desk(database_url, *agents()) as desk:  # type: ignore[arg-type]
        await desk.admit("keyed", an_event(chat="c"))
        await desk.work()
        await desk.database.execute("update deliveries set state = 'sent', finished_at = parley_now()")
        await desk.database.execute("delete from reservations")
        await pass_time(desk.database, LONG)
        [step] = [task.step for task in tasks(EVERYTHING) if task.name == "runs"]

        async with desk.database.transaction() as tx:
            removed = (await step(tx, uuid.UUID(int=0))).removed
            assert (removed["runs"], removed["lanes"]) == (1, 1)
            admitting = asyncio.create_task(desk.admit("keyed", an_event(chat="c")))
            await asyncio.sleep(0.2)
        [run_id] = await admitting

        await desk.work()
        assert await desk.status(run_id) == "succeeded"
