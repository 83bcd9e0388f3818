"""A turn ends in one transaction, and its conversation always goes on with the next head."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from schemas.run import RunStatus
from tests.support.clock import shift_clock
from tests.support.desk import RECALL_WAIT, Desk, a_desk
from tests.support.events import an_agent, an_event, candidates_of
from tests.support.faults import Faults
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.delivery.journal import finish_replies
from workers.turns.policy import Ended
from workers.turns.recovery import Recovered
from workers.turns.settle import Settlement

STATE = (
    "select r.status, r.finished_at is not null, l.owner_run is not null, count(t.snapshot)"
    " from runs r join lanes l on l.id = r.lane_id left join turns t on t.lane_id = l.id group by 1, 2, 3"
)


def state_seen_elsewhere(url: str) -> tuple[object, ...]:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(STATE).fetchone()
        assert row is not None
        return row


async def somebody_waits(desk: Desk) -> bool:
    return bool(
        await desk.value(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
    )


@pytest.mark.rule("EN-24")
async def test_status_owner_and_snapshot_change_in_one_transaction(database_url: str) -> None:
    faults = Faults()
    seen: list[tuple[object, ...]] = []
    async with a_desk(database_url, an_agent(conversation=True), reached=faults) as desk:
        await desk.admit("echo", an_event())
        for point in ("settle.before_commit", "settle.committed"):
            faults.at(point, lambda: seen.append(state_seen_elsewhere(database_url)))

        await desk.turn_once()

    assert seen == [("running", False, True, 1), ("succeeded", True, False, 0)]


@pytest.mark.rule("EN-24")
async def test_a_run_admitted_while_settlement_waited_for_the_lock_becomes_ready(database_url: str) -> None:
    agent = an_agent(conversation=True)
    async with a_desk(database_url, agent) as desk:
        first = an_event(chat="c")
        await desk.admit("echo", first)
        claim = await desk.claims.claim(desk.session.id, [])
        [turn] = claim.turns

        async with desk.database.transaction() as tx:
            await desk.admission.admit_in(tx, candidates_of(agent, [an_event(chat="c")]))
            settling = asyncio.create_task(
                desk.settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED)))
            )
            await eventually("it waits for the lane", lambda: somebody_waits(desk))
        await settling

        assert await desk.due() == 1
        await desk.work()
        assert await desk.statuses() == {"succeeded": 2}


@pytest.mark.rule("EN-24")
async def test_the_sweep_queues_a_due_head_that_is_missing_and_nothing_else(database_url: str) -> None:
    gate = asyncio.Event()

    async def runs(turn: Turn) -> None:
        await gate.wait()

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event(text="owned"), an_event(chat="c"), an_event(chat="d"))
        await desk.database.execute("delete from ready where lane_id > (select min(lane_id) from ready)")
        await desk.loop.run_once()
        assert await desk.value("select count(*) from ready") == 0

        swept = await desk.recovery.run_once()

        assert swept == Recovered(requeued=2)
        assert await desk.recovery.run_once() == Recovered()
        gate.set()
        await desk.work()
        assert await desk.statuses() == {"succeeded": 3}


@pytest.mark.rule("EN-24")
async def test_the_sweep_comes_by_every_lane_of_many(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.turns.recovery.OPEN_RUNS_A_SWEEP", 7)
    async with a_desk(database_url, an_agent(conversation=True)) as desk:
        await desk.admit("echo", *(an_event(chat=f"c{n % 12}") for n in range(60)))
        await desk.database.execute("delete from ready")

        requeued = [(await desk.recovery.run_once()).requeued for _ in range(14)]

        assert sum(requeued) == 12
        assert await desk.value("select count(*) from ready") == 12


@pytest.mark.rule("EN-24")
@pytest.mark.parametrize("held", [True, False], ids=["by a session", "by nobody"])
async def test_a_finished_run_that_still_owns_is_freed_and_lends_nobody_its_snapshot(
    database_url: str, held: bool
) -> None:
    seen: list[list[str]] = []

    async def runs(turn: Turn) -> None:
        seen.append([exchange.text for exchange in turn.history])

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event(chat="c", text="first"))
        [turn] = (await desk.claims.claim(desk.session.id, [])).turns
        await desk.admit("echo", an_event(chat="c", text="second"))
        await desk.database.execute(
            "update runs set status = 'failed', finished_at = parley_now() where id = $1", turn.own.run_id
        )
        if not held:
            await desk.database.execute("update turns set session_id = null")
        await desk.database.execute(
            "insert into ready select $1, 'echo', 'lab/a', parley_now()", turn.own.lane_id
        )

        await desk.turn_once()
        assert seen == []
        freed = await desk.recovery.run_once()
        await desk.work()

        assert freed.freed == 1
        assert seen == [["first"]]
        assert await desk.statuses() == {"failed": 1, "succeeded": 1}


@pytest.mark.rule("CM-34")
async def test_the_next_turn_waits_until_the_last_ones_replies_are_final(database_url: str) -> None:
    texts: list[list[str]] = []

    async def runs(turn: Turn) -> None:
        texts.append([exchange.text for exchange in turn.history])
        await turn.reply(f"answer {len(texts)}")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event(chat="c", text="one"), an_event(chat="c", text="two"))
        await desk.work()
        assert texts == [[]]
        assert await desk.value("select due_at > parley_now() from ready")

        await mark_sent(desk)
        await desk.work()

        assert texts == [[], ["one", "answer 1"]]


@pytest.mark.rule("CM-34")
async def test_a_run_admitted_later_waits_at_the_same_gate(database_url: str) -> None:
    ran: list[str] = []

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.text)
        await turn.reply("answer")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event(chat="c", text="one"))
        await desk.work()
        await desk.admit("echo", an_event(chat="c", text="two"))
        await desk.work()
        assert ran == ["one"]

        await mark_sent(desk)
        await desk.work()

        assert ran == ["one", "two"]


@pytest.mark.rule("CM-34")
async def test_the_gate_opens_by_itself_after_the_recall_wait(database_url: str) -> None:
    histories: list[list[str]] = []

    async def runs(turn: Turn) -> None:
        histories.append([exchange.text for exchange in turn.history])
        await turn.reply("answer")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event(chat="c", text="one"), an_event(chat="c", text="two"))
        await desk.work()
        await shift_clock(desk.database, RECALL_WAIT - timedelta(seconds=1.5))
        await desk.work()
        assert len(histories) == 1

        await shift_clock(desk.database, timedelta(seconds=1.6))
        await desk.work()

        assert histories == [[], ["one"]]


async def mark_sent(desk: Desk) -> None:
    """What a receipt does in the same transaction as the delivery's end."""
    async with desk.database.transaction() as tx:
        rows = await tx.fetch("select reply_key, lane_id from deliveries where finished_at is null")
        lanes = [row["lane_id"] for row in rows]
        await tx.fetch("select from lanes where id = any($1) for no key update", lanes)
        await tx.execute(
            "update deliveries set state = 'sent', finished_at = parley_now() where finished_at is null"
        )
        await finish_replies(tx, [row["reply_key"] for row in rows], lanes)


@pytest.mark.rule("EN-10")
async def test_a_reservation_keeps_how_its_run_ended_though_the_run_is_lost(database_url: str) -> None:
    async def breaks(turn: Turn) -> None:
        raise ValueError

    agents = (an_agent("works"), an_agent("breaks", runs=breaks))
    async with a_desk(database_url, *agents) as desk:
        await desk.admit("works", an_event())
        await desk.admit("breaks", an_event())
        await desk.turn_once()

        await desk.database.execute("alter table run_steps drop constraint run_steps_run_id_fkey")
        await desk.database.execute("delete from deliveries")
        await desk.database.execute("delete from runs")

        kept = await desk.rows("select agent, outcome from reservations order by agent")
        assert [tuple(row.values()) for row in kept] == [("breaks", "failed"), ("works", "succeeded")]
