"""Runs and conversations are in one database: what belongs together commits together, whoever is killed in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from schemas.run import new_uuid7
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event, candidates_of
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.operations import conversations
from workers.postgres.database import Database

KILLED_ONCE = """
create sequence kills;
create function die_once() returns trigger language plpgsql as $$
begin
    if nextval('kills') = 1 then
        perform pg_terminate_backend(pg_backend_pid());
        perform pg_sleep(10);
    end if;
    return new;
end $$;
"""


async def killed_at(desk: Desk, table: str) -> None:
    """The server process of the first transaction that comes to write `table` is killed there."""
    await desk.database.execute(KILLED_ONCE)
    await desk.database.execute(
        f"create trigger die_once before insert on {table} for each row execute function die_once()"
    )


async def kills(desk: Desk) -> int:
    return int(await desk.value("select last_value from kills where is_called"))


def noting() -> Agent:
    async def runs(turn: Turn) -> None:
        receipt = await turn.set_note("key", "text")
        await turn.reply(f"saved {receipt.changed} {[exchange.text for exchange in turn.history]}")

    return an_agent("helper", runs=runs, conversation="k")


@pytest.mark.rule("CM-70")
async def test_records_without_their_conversation_or_run_are_refused_by_the_database(
    database_url: str,
) -> None:
    database = await Database.open(database_url, max_size=1)
    now = "parley_now()"
    orphans: dict[str, tuple[str, tuple[Any, ...]]] = {
        "conversation without a lane": (
            "insert into conversations (lane_id, memory_key, channel, account, chat, audience)"
            " values (7, 'k', 'c', 'a', 'c', 'd')",
            (),
        ),
        "item without a conversation": (
            "insert into items (lane_id, generation, kind, status, run_id, body_bytes)"
            " values (7, 0, 'input', 'accepted', $1, 0)",
            (new_uuid7(),),
        ),
        "note without a conversation": (
            "insert into notes (lane_id, generation, key, body, body_bytes) values (7, 0, 'k', '', 0)",
            (),
        ),
        "receipt without a conversation": (
            "insert into note_operations (lane_id, run_id, step, call, act, key, receipt)"
            " values (7, $1, 0, 0, 'set', 'k', '{}')",
            (new_uuid7(),),
        ),
        "step without a run": (
            "insert into run_steps (run_id, step, call, kind, name, args_digest, agent_version, state, epoch)"
            f" select $1, 0, 0, 'step', 's', '', '1', 'started', 1 where {now} is not null",
            (new_uuid7(),),
        ),
    }
    refused = []
    for what, (statement, arguments) in orphans.items():
        try:
            await database.execute(statement, *arguments)
        except asyncpg.ForeignKeyViolationError:
            refused.append(what)
    await database.close()
    assert refused == list(orphans)


@pytest.mark.rule("CM-70")
async def test_a_conversation_with_records_cannot_be_removed_under_them(database_url: str) -> None:
    async with a_desk(database_url, noting()) as desk:
        await desk.admit("helper", an_event())
        await desk.work()

        for table in ("conversations", "lanes"):
            with pytest.raises(asyncpg.ForeignKeyViolationError):
                await desk.database.execute(f"delete from {table}")


@pytest.mark.rule("CM-72")
@pytest.mark.parametrize("table", ["reservations", "runs", "ready"])
async def test_a_kill_within_admission_leaves_neither_reservation_nor_run(
    database_url: str, table: str
) -> None:
    async with a_desk(database_url, noting()) as desk:
        await killed_at(desk, table)
        event = an_event()
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            async with desk.database.transaction() as tx:
                await desk.admission.admit_in(tx, candidates_of(desk.agents["helper"], [event]))
        left = await desk.rows(
            "select (select count(*) from reservations) as reservations, (select count(*) from runs) as runs,"
            " (select count(*) from lanes) as lanes, (select count(*) from conversations) as conversations"
        )

        [run_id] = await desk.admit("helper", event)
        await desk.work()

        assert left == [{"reservations": 0, "runs": 0, "lanes": 0, "conversations": 0}]
        assert await kills(desk) >= 1
        assert await desk.status(run_id) == "succeeded"


@pytest.mark.rule("CM-72", "CM-71")
@pytest.mark.parametrize("table", ["items", "turns"])
async def test_a_kill_within_the_claim_leaves_neither_owner_nor_snapshot_nor_input(
    database_url: str, table: str
) -> None:
    async with a_desk(database_url, noting()) as desk:
        [run_id] = await desk.admit("helper", an_event(text="hello"))
        await killed_at(desk, table)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await desk.loop.run_once()
        lane, run = await desk.lane_of(run_id), await desk.run(run_id)
        left = await desk.value("select (select count(*) from items) + (select count(*) from turns)")

        await desk.work()

        assert (lane["owner_run"], lane["epoch"], run["status"], left) == (None, 0, "queued", 0)
        assert await desk.status(run_id) == "succeeded"
        assert await desk.value("select count(*) from items where kind = 'input'") == 1


@pytest.mark.rule("CM-72", "CM-74")
@pytest.mark.parametrize("table", ["notes", "note_operations"])
async def test_a_kill_between_a_note_and_its_receipt_leaves_neither_and_the_retry_edits_once(
    database_url: str, table: str
) -> None:
    async with a_desk(database_url, noting()) as desk:
        [run_id] = await desk.admit("helper", an_event())
        await killed_at(desk, table)
        await desk.turn_once()
        left = await desk.value(
            "select (select count(*) from notes) + (select count(*) from note_operations)"
        )
        await desk.database.execute("update runs set due_at = now() where finished_at is null")
        await desk.database.execute("update ready set due_at = now()")
        await desk.work()

        assert left in (0, 2)
        assert await kills(desk) >= 1
        assert await desk.status(run_id) == "succeeded"
        assert await desk.value("select count(*) from notes") == 1
        assert await desk.value("select count(*) from note_operations") == 1
        assert await desk.replies(run_id) == ["saved True []"]


@pytest.mark.rule("CM-71", "CM-76")
async def test_a_finished_run_that_still_owns_its_conversation_is_repaired_and_refuses_operators_until_then(
    database_url: str,
) -> None:
    async with a_desk(database_url, noting(), recall_wait=timedelta(0)) as desk:
        [done] = await desk.admit("helper", an_event(chat="room"))
        await desk.work()
        await _own_again(desk, done)
        [waiting] = await desk.admit("helper", an_event(chat="room", text="next"))
        await desk.work()
        lane = await desk.lane_of(done)
        with pytest.raises(Exception, match=str(done)):
            await conversations.reset(desk.database, lane["id"], "operator")
        assert await desk.status(waiting) == "queued"

        recovered = await desk.recovery.run_once()
        await desk.work()

        assert recovered.freed == 1
        assert await desk.status(waiting) == "succeeded"
        assert (await desk.lane_of(done))["owner_run"] is None
        await conversations.reset(desk.database, lane["id"], "operator")


async def _own_again(desk: Desk, run_id: UUID) -> None:
    """As where a restored backup holds the lane of before the settlement, and the run of after it."""
    lane = await desk.lane_of(run_id)
    await desk.database.execute("update lanes set owner_run = $1 where id = $2", run_id, lane["id"])
    await desk.database.execute(
        "insert into turns (lane_id, run_id, epoch, session_id, snapshot) values ($1, $2, $3, $4, $5)",
        lane["id"],
        run_id,
        lane["epoch"],
        desk.session.id,
        b"{}",
    )
