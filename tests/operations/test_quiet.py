"""Reset and delete of a conversation in which a turn is active: refused, after the turn, or after its cancellation."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from uuid import UUID

import pytest

from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.operations.conversations import Renewed, delete, reset
from workers.operations.errors import TurnActive
from workers.operations.quiet import HOLD, HOLD_CLAIMS, WhenActive
from workers.operations.runs import list_runs

ACTS = [reset, delete]


class Gate:
    """An agent whose turns say when they began and end when they may."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.open = asyncio.Event()
        self.agent: Agent = an_agent(runs=self._run, conversation=True)

    async def _run(self, turn: Turn) -> None:
        self.began.append(turn.event.text)
        await self.open.wait()
        await turn.reply(f"answer to {turn.event.text}")


async def started(desk: Desk, gate: Gate, text: str = "first") -> UUID:
    [run_id] = await desk.admit("echo", an_event(chat="c", text=text))
    await eventually("its turn has begun", lambda: text in gate.began)
    return run_id


async def lane_of(desk: Desk, run_id: UUID) -> int:
    return int((await desk.lane_of(run_id))["id"])


def begin(
    desk: Desk, act: object, lane_id: int, when_active: WhenActive, named: list[UUID], within_s: float = 20
) -> asyncio.Task[Renewed]:
    do = reset if act is reset else delete
    return asyncio.create_task(
        do(
            desk.database,
            lane_id,
            "ann",
            when_active=when_active,
            within=timedelta(seconds=within_s),
            waiting=named.append,
        )
    )


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize("act", ACTS)
async def test_an_act_that_waits_holds_claims_and_is_done_after_the_active_turn(
    database_url: str, act: object
) -> None:
    gate, named = Gate(), list[UUID]()
    async with a_desk(database_url, gate.agent) as desk, desk.running():
        run_id = await started(desk, gate)
        lane_id = await lane_of(desk, run_id)
        [second] = await desk.admit("echo", an_event(chat="c", text="second"))

        acting = begin(desk, act, lane_id, "wait", named)
        await eventually("it waits", lambda: named)
        [third] = await desk.admit("echo", an_event(chat="c", text="third"))
        gate.open.set()
        done = await acting

        assert named == [run_id]
        assert gate.began == ["first"]
        assert (done.generation, done.cancelled_runs) == (1, 2)
        assert [await desk.status(each) for each in (run_id, second, third)] == [
            "succeeded",
            "cancelled",
            "cancelled",
        ]
        await desk.admit("echo", an_event(chat="c", text="after it"))
        await eventually("the next generation is answered", lambda: gate.began == ["first", "after it"])


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize("act", ACTS)
async def test_an_act_that_cancels_ends_the_active_turn_first_and_starts_no_other(
    database_url: str, act: object
) -> None:
    gate, named = Gate(), list[UUID]()
    async with a_desk(database_url, gate.agent) as desk, desk.running():
        run_id = await started(desk, gate)
        [second] = await desk.admit("echo", an_event(chat="c", text="second"))

        done = await begin(desk, act, await lane_of(desk, run_id), "cancel", named)

        assert (named, gate.began, done.generation) == ([run_id], ["first"], 1)
        assert [await desk.status(each) for each in (run_id, second)] == ["cancelled"] * 2
        assert await desk.replies() == []
        acts = [row["act"] for row in await desk.rows("select act from audit order by id")]
        assert acts == ["run.cancel", f"conversation.{done.act}"]


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize("act", ACTS)
async def test_one_that_waits_in_vain_names_the_run_changes_nothing_and_leaves_no_hold(
    database_url: str, act: object
) -> None:
    gate, named = Gate(), list[UUID]()
    async with a_desk(database_url, gate.agent) as desk, desk.running():
        run_id = await started(desk, gate)
        lane_id = await lane_of(desk, run_id)
        await desk.admit("echo", an_event(chat="c", text="second"))

        with pytest.raises(TurnActive, match=r"did not end within 0\.3 s") as refused:
            await begin(desk, act, lane_id, "wait", named, within_s=0.3)

        assert (refused.value.run_id, refused.value.lane_id) == (run_id, lane_id)
        assert (await desk.lane_of(run_id))["generation"] == 0
        assert await desk.value("select count(*) from audit") == 0
        assert await desk.value("select count(*) from pauses") == 0
        gate.open.set()
        await eventually("the second is answered", lambda: gate.began == ["first", "second"])


@pytest.mark.rule("CM-64")
async def test_a_hold_keeps_a_due_run_from_being_claimed_and_lapses_by_itself(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    async with a_desk(database_url, gate.agent) as desk:
        [first] = await desk.admit("echo", an_event(chat="c", text="first"))
        await desk.database.execute(HOLD_CLAIMS, await lane_of(desk, first), HOLD)
        await desk.database.execute("update ready set due_at = parley_now()")

        await desk.work()
        assert gate.began == []

        await desk.database.execute("update runs set due_at = due_at - $1::interval", HOLD)
        await desk.database.execute("update ready set due_at = due_at - $1::interval", HOLD)
        await desk.work()
        assert gate.began == ["first"]


KILLED = """
import asyncio, signal, sys
from workers.operations.conversations import reset
from workers.postgres.database import Database

async def main():
    database = await Database.open(sys.argv[1], min_size=1, max_size=2)
    await reset(database, int(sys.argv[2]), "ann", when_active="wait", waiting=lambda run_id: print(run_id, flush=True))

# Whoever runs the tests in a shell's background handed down that interrupts are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main())
"""


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
async def test_one_that_is_killed_or_interrupted_while_it_waits_leaves_no_pause_behind(
    database_url: str, how: signal.Signals
) -> None:
    gate = Gate()
    async with a_desk(database_url, gate.agent) as desk, desk.running():
        run_id = await started(desk, gate)
        await desk.admit("echo", an_event(chat="c", text="second"))
        lane_id = await lane_of(desk, run_id)
        operator = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            KILLED,
            database_url,
            str(lane_id),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert operator.stdout is not None
        said = await asyncio.wait_for(operator.stdout.readline(), 30)
        assert said.decode().strip() == str(run_id)

        os.kill(operator.pid, how)
        assert await asyncio.wait_for(operator.wait(), 30) != 0
        gate.open.set()

        await eventually("the second is answered", lambda: gate.began == ["first", "second"])
        await eventually("both have ended", lambda: _nothing_open(desk))
        assert (await desk.lane_of(run_id))["generation"] == 0
        assert await desk.value("select count(*) from audit") == 0


async def _nothing_open(desk: Desk) -> bool:
    return await list_runs(desk.database, open_only=True) == []


async def _is_held(desk: Desk, run_id: UUID) -> bool:
    return bool(await desk.value("select due_at > parley_now() from runs where id = $1", run_id))


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize(("act", "when_active"), [(reset, "wait"), (delete, "cancel")])
async def test_a_conversation_that_is_never_quiet_by_itself_is_still_reset_and_deleted(
    database_url: str, act: object, when_active: WhenActive
) -> None:
    over = asyncio.Event()

    async def quick(turn: Turn) -> None:
        await asyncio.sleep(0.03)

    agent = an_agent(runs=quick, conversation=True)
    async with a_desk(database_url, agent) as desk, desk.running():

        async def talk() -> int:
            """Somebody who writes faster than the agent answers, so that one turn follows another."""
            said = 0
            while not over.is_set():
                await desk.admit("echo", *[an_event(chat="c", text="more") for _ in range(3)])
                said += 3
                await asyncio.sleep(0.03)
            return said

        talking = asyncio.create_task(talk())
        try:
            await eventually("turns follow each other", lambda: _ended_runs(desk, 10))
            lane_id = int(await desk.value("select lane_id from conversations"))
            done = await begin(desk, act, lane_id, when_active, [])
            at_once = await desk.value("select count(*) from runs where status = 'cancelled'")
            before = await desk.value("select count(*) from runs where status = 'succeeded'")
            await eventually("the next generation is answered", lambda: _ended_runs(desk, before + 5))
        finally:
            over.set()
            await talking

        assert done.generation == 1
        assert at_once >= done.cancelled_runs > 0
        answered = await desk.value("select count(*) from runs where status = 'succeeded' and generation = 1")
        assert answered > 0


async def _ended_runs(desk: Desk, at_least: int) -> bool:
    return int(await desk.value("select count(*) from runs where status = 'succeeded'")) >= at_least
