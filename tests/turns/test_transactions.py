"""Transactions are short: nobody else's code runs inside one, and one that stands still is ended by the server."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.support.desk import a_desk
from tests.support.events import an_agent, an_event
from tests.support.turn_worker import Orders, a_worker
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.memory.access import Access, Allow
from workers.postgres.database import Database

OPEN = (
    "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'parley%'"
    " and (state like 'idle in transaction%' or xact_start < now() - interval '1 second')"
)


def open_transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(OPEN.encode()).fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.rule("EN-19")
async def test_no_transaction_is_open_while_policy_split_or_agent_run(database_url: str) -> None:
    found: dict[str, int] = {}

    def look(where: str) -> None:
        found[where] = max(found.get(where, 0), open_transactions(database_url))

    async def authorize(access: Access) -> Allow:
        look(f"policy: {access.purpose}")
        return Allow()

    def split(channel: str, text: str) -> tuple[str, ...]:
        look("split")
        return (text,)

    async def runs(turn: Turn) -> None:
        look("agent")
        await turn.reply("one")
        await turn.step("step", look, "step")
        await turn.set_note("key", "text")
        look("agent's end")

    agent = an_agent(runs=runs, conversation=True)
    # One turn at a time, so that whatever transaction is seen is its own.
    async with a_desk(database_url, agent, authorize=authorize, split=split, slots=1) as desk:
        await desk.admit("echo", *(an_event() for _ in range(5)))
        await desk.work()
        assert await desk.statuses() == {"succeeded": 5}

    assert found == dict.fromkeys(
        ["policy: recall", "policy: notes", "split", "agent", "step", "agent's end"], 0
    )


@pytest.mark.rule("EN-19")
async def test_every_connection_bounds_its_waits(database_url: str) -> None:
    database = await Database.open(database_url)
    for setting in ("idle_in_transaction_session_timeout", "lock_timeout"):
        row = await database.fetchrow("select current_setting($1)", setting)
        assert row is not None
        assert row[0] == "5s"
    await database.close()


@pytest.mark.rule("EN-19", "EN-18")
@pytest.mark.parametrize("point", ["claim.before_commit", "journal.before_commit", "settle.before_commit"])
async def test_a_worker_stopped_in_a_transaction_blocks_nobody_for_longer_than_five_seconds(
    database_url: str, tmp_path: Path, point: str
) -> None:
    lease = timedelta(seconds=2)
    agent = an_agent(conversation=True)
    async with a_desk(database_url, agent, lease_for=lease, poll_every=timedelta(milliseconds=50)) as desk:
        [run_id] = await desk.admit("echo", an_event(text="hello"))
        orders = Orders(
            database_url,
            str(tmp_path),
            lease_for=lease.total_seconds(),
            at_point=point,
            signal=signal.SIGSTOP,
        )
        async with a_worker(orders) as worker:
            await eventually("it stands in its transaction", lambda: worker.is_stopped, timedelta(seconds=40))
            stopped_at = asyncio.get_running_loop().time()
            async with desk.running():
                [other] = await desk.admit("echo", an_event(text="somebody else's"))
                await eventually(
                    "others run at once", lambda: desk.value(FINISHED, other), timedelta(seconds=3)
                )
                await eventually("its own conversation too", lambda: desk.value(FINISHED, run_id))
                await eventually("its session is taken over", lambda: desk.value(DEAD))
            took = asyncio.get_running_loop().time() - stopped_at

            assert took < (5 + 2 + 5 if point != "claim.before_commit" else 5 + 2)
            worker.send(signal.SIGCONT)
            await eventually("it noticed", lambda: "session.lost" in worker.log())
            assert (await desk.run(run_id))["status"] == "succeeded"


DEAD = "select count(*) from worker_sessions where dead_at is not null"
FINISHED = "select finished_at is not null from runs where id = $1"
