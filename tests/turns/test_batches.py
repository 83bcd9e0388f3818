"""One bad row refuses itself; a bad moment refuses nobody: at claim, in the journal and at settlement."""

import asyncio
from collections.abc import Callable

import asyncpg
import psycopg
import pytest

from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.faults import Faults, fail_first, poison
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.turns.policy import Caps

MANY = 500
ALL_AT_ONCE = Caps(slots=MANY, per_agent=MANY, per_account=MANY)
RETRIED = ["40001", "40P01", "55P03", "25006", "53300"]


async def replies(turn: Turn) -> None:
    await turn.reply(turn.event.text)


async def a_full_house(desk: Desk) -> str:
    """500 due runs of 500 conversations; returns the id of the one that will be poison."""
    runs = await desk.admit("echo", *(an_event(text=f"{n}") for n in range(MANY)))
    return str(runs[MANY // 3])


async def reasons(desk: Desk) -> dict[str | None, int]:
    rows = await desk.rows("select reason, count(*) as n from runs group by reason")
    return {row["reason"]: row["n"] for row in rows}


@pytest.mark.rule("EN-14")
async def test_one_poison_row_at_the_claim_is_refused_alone(database_url: str) -> None:
    async with a_desk(database_url, an_agent(runs=replies, conversation=True), caps=ALL_AT_ONCE) as desk:
        run_id = await a_full_house(desk)
        await poison(desk.database, "turns", "insert", f"new.run_id = '{run_id}'")

        await desk.work()

        assert await desk.statuses() == {"succeeded": MANY - 1, "failed": 1}
        assert (await reasons(desk))["refused at claim: NumericValueOutOfRangeError"] == 1
        assert len(await desk.replies()) == MANY - 1


@pytest.mark.rule("EN-14")
async def test_one_poison_row_in_the_journal_is_refused_alone(database_url: str) -> None:
    async with a_desk(database_url, an_agent(runs=replies, conversation=True), caps=ALL_AT_ONCE) as desk:
        run_id = await a_full_house(desk)
        await poison(desk.database, "run_steps", "insert", f"new.run_id = '{run_id}'", "23514")

        await desk.work()

        assert await desk.statuses() == {"succeeded": MANY - 1, "failed": 1}
        assert len(await desk.replies()) == MANY - 1


@pytest.mark.rule("EN-14")
async def test_one_poison_row_at_settlement_is_refused_alone(database_url: str) -> None:
    async with a_desk(database_url, an_agent(runs=replies, conversation=True), caps=ALL_AT_ONCE) as desk:
        run_id = await a_full_house(desk)
        await poison(desk.database, "runs", "update", f"new.id = '{run_id}' and new.status = 'succeeded'")

        await desk.work()

        assert await desk.statuses() == {"succeeded": MANY - 1, "failed": 1}
        assert (await reasons(desk))["refused at settlement: NumericValueOutOfRangeError"] == 1
        assert len(await desk.replies()) == MANY
        assert await desk.value("select count(*) from turns") == 0


@pytest.mark.rule("EN-14")
async def test_a_poison_head_does_not_end_what_another_worker_claimed_meanwhile(database_url: str) -> None:
    gate = asyncio.Event()

    async def waits(turn: Turn) -> None:
        await gate.wait()

    agent = an_agent(runs=waits, conversation=True)
    async with a_desk(database_url, agent) as one, a_desk(database_url, agent) as two:
        [run_id] = await one.admit("echo", an_event())
        await two.loop.run_once()
        lane = (await one.lane_of(run_id))["id"]

        await one.claims._refuse([lane], "NumericValueOutOfRangeError")

        gate.set()
        await two.loop.idle()
        assert await one.status(run_id) == "succeeded"


@pytest.mark.rule("EN-14")
@pytest.mark.parametrize("sqlstate", RETRIED)
@pytest.mark.parametrize(
    ("table", "event"),
    [("turns", "insert"), ("run_steps", "insert"), ("turns", "delete")],
    ids=["claim", "journal", "settle"],
)
async def test_an_error_of_the_moment_retries_the_batch_and_blames_no_row(
    database_url: str, sqlstate: str, table: str, event: str
) -> None:
    async with a_desk(database_url, an_agent(runs=replies, conversation=True)) as desk:
        await desk.admit("echo", *(an_event() for _ in range(20)))
        await fail_first(desk.database, table, event, sqlstate)

        async with desk.running():
            await eventually("all answered", lambda: done(desk, 20))

        assert await desk.statuses() == {"succeeded": 20}
        assert await desk.value("select max(retries + crashes + attempts) from runs") == 0
        assert len(await desk.replies()) == 20
        assert await desk.value("select last_value from injected") > 2


async def done(desk: Desk, runs: int) -> bool:
    return await desk.statuses() == {"succeeded": runs}


def cut(url: str) -> Callable[[], None]:
    """Let the server end every connection of this database that is in a transaction."""

    def act() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and state = 'idle in transaction'"
            )

    return act


@pytest.mark.rule("EN-14")
@pytest.mark.parametrize("point", ["claim.before_commit", "journal.before_commit", "settle.before_commit"])
async def test_a_connection_lost_before_the_commit_blames_no_row(database_url: str, point: str) -> None:
    faults = Faults()
    async with a_desk(database_url, an_agent(runs=replies, conversation=True), reached=faults) as desk:
        await desk.admit("echo", *(an_event() for _ in range(20)))
        faults.at(point, cut(database_url))

        async with desk.running():
            await eventually("all answered", lambda: done(desk, 20))

        assert await desk.value("select max(retries + crashes + attempts) from runs") == 0
        assert len(await desk.replies()) == 20


@pytest.mark.rule("EN-14", "EN-24")
@pytest.mark.parametrize("point", ["claim.committed", "journal.committed", "settle.committed"])
@pytest.mark.parametrize(
    "error",
    [ConnectionResetError(), asyncpg.ConnectionDoesNotExistError("injected"), TimeoutError()],
    ids=repr,
)
async def test_a_commit_whose_outcome_was_not_heard_is_no_loss(
    database_url: str, point: str, error: Exception
) -> None:
    ran: list[str] = []
    faults = Faults()

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.event_id)
        await turn.reply("done")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True), reached=faults) as desk:
        await desk.admit("echo", *(an_event() for _ in range(20)))
        faults.fail(point, error)

        async with desk.running():
            await eventually("all answered", lambda: done(desk, 20))

        assert len(ran) == len(set(ran)) == 20
        assert len(await desk.replies()) == 20
        assert await desk.value("select max(retries + crashes + attempts) from runs") == 0
        assert await desk.value("select count(*) from turns") == 0
