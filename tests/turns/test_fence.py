"""Who lost a turn writes nothing of it any more, and takes nobody along."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import pytest
import structlog.testing

from schemas.run import RunStatus
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.turn_worker import Orders, a_worker
from tests.support.waiting import eventually
from workers.agents.errors import LostOwnership
from workers.agents.journal import StepRecord
from workers.agents.turn import Turn
from workers.turns.policy import Ended
from workers.turns.settle import Settlement

LEASE = timedelta(seconds=2)


def a_step(step: int = 0) -> StepRecord:
    return StepRecord(step, 0, "step", "late", b"", "1", "finished", b"null")


async def somebody_waits(desk: Desk) -> bool:
    return bool(
        await desk.value(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
    )


@pytest.mark.rule("EN-18", "EN-17")
async def test_a_worker_that_was_stopped_and_continued_writes_nothing_of_what_it_lost(
    database_url: str, tmp_path: Path
) -> None:
    texts = ["wait go", "step go", "note go", "end go", "linger"]
    orders = Orders(database_url, str(tmp_path), lease_for=LEASE.total_seconds())
    async with a_desk(database_url, an_agent(conversation=True), lease_for=LEASE) as desk:
        runs = await desk.admit("echo", *(an_event(text=text) for text in texts))
        async with a_worker(orders) as worker:
            await eventually(
                "all turns run",
                lambda: (tmp_path / "started").exists() and len(started(tmp_path)) == 5,
                timedelta(seconds=30),
            )
            await eventually("it has replied", lambda: desk.replies())
            worker.send(signal.SIGSTOP)

            async def taken_over() -> bool:
                await desk.recovery.run_once()
                return await desk.statuses() == {"interrupted": 5}

            await eventually("taken over", taken_over, LEASE + timedelta(seconds=5))
            before = [await desk.lane_of(run) for run in runs]
            (tmp_path / "go").touch()
            # Nobody may run them meanwhile, so that whatever is written was written by the old owner.
            await desk.database.execute("update ready set due_at = parley_now() + interval '1 hour'")
            await desk.database.execute("update runs set due_at = parley_now() + interval '1 hour'")
            worker.send(signal.SIGCONT)
            await eventually("it noticed", lambda: "session.lost" in worker.log())
            await eventually("losses are logged", lambda: worker.log().count("ownership.lost") >= 5)
            await eventually("its agent was cancelled", lambda: list(tmp_path.glob("cancelled-*")))

            assert await desk.statuses() == {"interrupted": 5}
            assert await desk.replies() == ["before"]
            assert await desk.value("select count(*) from run_steps") == 1
            assert await desk.value("select count(*) from notes") == 0
            assert [await desk.lane_of(run) for run in runs] == before
            assert "loop_stuck" not in worker.log()

            await desk.database.execute("update runs set due_at = parley_now()")
            await desk.database.execute("update ready set due_at = parley_now()")
            await desk.admit("echo", an_event(text="a neighbour"))
            await eventually("it goes on under a new session", lambda: finished(desk, 5))
            assert sorted(await desk.replies()) == ["after", "answer to a neighbour", "before"]


def started(folder: Path) -> list[str]:
    return (folder / "started").read_text().splitlines()


async def finished(desk: Desk, runs: int) -> bool:
    return (await desk.statuses()).get("succeeded", 0) == runs


@pytest.mark.rule("EN-18", "EN-14")
async def test_lost_turns_fail_no_neighbour_in_their_batch(database_url: str) -> None:
    gate = asyncio.Event()
    lost: list[str] = []

    async def runs(turn: Turn) -> None:
        await gate.wait()
        try:
            await turn.reply(turn.event.text)
        except LostOwnership:
            lost.append(turn.event.text)
            raise

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        ids = await desk.admit("echo", *(an_event(text=f"{n}") for n in range(20)))
        await desk.loop.run_once()
        taken = [(await desk.lane_of(run))["id"] for run in ids[::5]]
        await desk.database.execute("update lanes set epoch = epoch + 1 where id = any($1)", taken)
        gate.set()
        with structlog.testing.capture_logs() as logs:
            await desk.loop.idle()

        assert sorted(lost, key=int) == ["0", "5", "10", "15"]
        assert len(await desk.replies()) == 16
        assert await desk.statuses() == {"succeeded": 16, "running": 4}
        assert sum(line["event"] == "ownership.lost" for line in logs) >= 4


@pytest.mark.rule("EN-18")
@pytest.mark.parametrize("write", ["journal", "settlement"])
async def test_a_write_that_meets_a_takeover_under_way_waits_and_is_refused(
    database_url: str, write: str
) -> None:
    """The epoch still matches when the statement begins: a test of it without the lock would let the write pass."""
    async with a_desk(database_url, an_agent(conversation=True)) as desk:
        [run_id] = await desk.admit("echo", an_event())
        claim = await desk.claims.claim(desk.session.id, [])
        [turn] = claim.turns

        async with desk.database.transaction() as tx:
            await tx.execute("update lanes set epoch = epoch + 1 where id = $1", turn.own.lane_id)
            writing = asyncio.create_task(
                desk.journal.of(turn, {}).write(a_step())
                if write == "journal"
                else desk.settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED)))
            )
            await eventually("it waits for the lane", lambda: somebody_waits(desk))

        with pytest.raises(LostOwnership):
            await writing
        assert await desk.status(run_id) == "running"
        assert await desk.value("select count(*) from run_steps") == 0


@pytest.mark.rule("EN-18", "EN-24")
async def test_a_status_that_somebody_else_gave_the_run_is_no_own_success(database_url: str) -> None:
    """Taken over and failed as exhausted under the old epoch: the old owner's success is lost, not confirmed."""
    agent = an_agent(conversation=True, max_crash_attempts=1)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        [run_id] = await one.admit("echo", an_event())
        claim = await one.claims.claim(one.session.id, [])
        [turn] = claim.turns
        await one.lapse()
        await two.recovery.run_once()
        assert (await one.run(run_id))["reason"] == "attempts exhausted"

        with pytest.raises(LostOwnership):
            await one.settlements.settle(Settlement(turn, Ended(RunStatus.SUCCEEDED)))

        assert await one.status(run_id) == "failed"


@pytest.mark.rule("EN-18")
async def test_the_next_owner_runs_while_the_old_one_is_refused(database_url: str) -> None:
    gate = asyncio.Event()
    ran: list[str] = []

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.event_id)
        if len(ran) == 1:
            await gate.wait()
        await turn.reply(f"reply {len(ran)}")

    agent = an_agent(runs=runs, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        [run_id] = await one.admit("echo", an_event())
        await one.loop.run_once()
        await eventually("it runs", lambda: ran)
        first = await one.turn_of(run_id)
        await one.lapse()
        await two.recovery.run_once()
        await two.turn_once()
        gate.set()
        await one.loop.idle()

        assert first is not None
        assert await one.replies() == ["reply 2"]
        run = await one.run(run_id)
        assert (run["status"], run["epoch"] > first["epoch"]) == ("succeeded", True)
