"""Who runs next: the head of each conversation, when due, and everybody in turn."""

import asyncio
import os
from datetime import timedelta

import pytest

from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.agents.errors import AgentFailed
from workers.agents.turn import Turn
from workers.operations.runs import cancel_runs
from workers.turns.policy import Backoff, Caps

SCALE = float(os.environ.get("PARLEY_TEST_SCALE", "1"))


class Gate:
    """An agent that starts, says so, and waits until the test lets it end."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.open = asyncio.Event()

    async def __call__(self, turn: Turn) -> None:
        self.started.append(turn.event.text)
        await self.open.wait()


def gated(gate: Gate, name: str = "echo", **changes: object):  # type: ignore[no-untyped-def]
    async def runs(turn: Turn) -> None:
        await gate(turn)

    return an_agent(name, runs=runs, conversation=True, **changes)


@pytest.mark.rule("EN-15")
async def test_a_conversation_runs_in_the_order_of_admission_under_concurrency(database_url: str) -> None:
    ran: dict[str, list[str]] = {}

    async def runs(turn: Turn) -> None:
        await asyncio.sleep(0)
        ran.setdefault(turn.event.chat, []).append(turn.event.text)

    agent = an_agent(runs=runs, conversation=True)
    async with a_desk(database_url, agent) as one, a_desk(database_url, agent) as two:

        async def admit(chat: str) -> None:
            for n in range(10):
                await one.admit(agent.name, an_event(chat=chat, text=str(n)))

        admitting = asyncio.gather(*(admit(f"c{n}") for n in range(8)))
        async with one.running(), two.running():
            await admitting
            await eventually("all ran", lambda: sum(map(len, ran.values())) == 80)

        rows = await one.rows(
            "select lane_id, array_agg(position order by admitted_at, position) as p from runs group by 1"
        )
        assert all(row["p"] == sorted(row["p"]) for row in rows)
    assert ran == {f"c{n}": [str(k) for k in range(10)] for n in range(8)}


@pytest.mark.rule("EN-15")
async def test_only_the_head_is_claimed(database_url: str) -> None:
    gate = Gate()
    async with a_desk(database_url, gated(gate)) as one, a_desk(database_url, gated(gate)) as two:
        await one.admit("echo", *(an_event(chat="c", text=text) for text in ("first", "second", "third")))

        for _ in range(3):
            await one.loop.run_once()
            await two.loop.run_once()
        await eventually("the head started", lambda: gate.started)

        assert gate.started == ["first"]
        gate.open.set()
        await asyncio.gather(one.loop.idle(), two.loop.idle())
        await one.work()
        assert gate.started == ["first", "second", "third"]


@pytest.mark.rule("EN-15")
async def test_a_retrying_head_holds_its_conversation_and_nobody_else(database_url: str) -> None:
    ran: list[str] = []

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.text)
        if turn.event.text == "flaky" and ran.count("flaky") == 1:
            raise AgentFailed("busy", retryable=True)

    agent = an_agent(runs=runs, conversation=True)
    async with a_desk(database_url, agent, backoff=Backoff(first=timedelta(minutes=1))) as desk:
        flaky, behind = await desk.admit(
            "echo", an_event(chat="c", text="flaky"), an_event(chat="c", text="behind")
        )
        await desk.work()
        await desk.admit("echo", an_event(chat="c", text="later"), an_event(chat="d", text="other"))
        await desk.work()

        assert ran == ["flaky", "other"]
        assert (await desk.run(flaky))["retries"] == 1
        assert await desk.status(behind) == "queued"
        await shift_clock(desk.database, timedelta(minutes=1))
        await desk.work()
        assert ran == ["flaky", "other", "flaky", "behind", "later"]


@pytest.mark.rule("EN-15")
async def test_more_turns_run_at_once_than_there_are_partitions(database_url: str) -> None:
    gate = Gate()
    async with a_desk(database_url, gated(gate)) as desk:
        await desk.admit("echo", *(an_event(account=f"a{n % 4}") for n in range(70)))

        for _ in range(4):
            await desk.loop.run_once()
        await eventually("64 turns run", lambda: len(gate.started) == 64)
        await desk.loop.run_once()

        assert desk.loop.active == 64
        gate.open.set()
        await desk.loop.idle()


@pytest.mark.rule("EN-15")
async def test_caps_leave_room_beside_a_hot_account_and_a_hot_agent(database_url: str) -> None:
    gate = Gate()
    agents = [gated(gate, "hot"), gated(gate, "calm")]
    async with a_desk(database_url, *agents, caps=Caps(slots=8, per_agent=6, per_account=4)) as desk:
        await desk.admit("hot", *(an_event(account="a", text="hot a") for _ in range(20)))
        await desk.admit("hot", *(an_event(account="b", text="hot b") for _ in range(20)))
        for _ in range(5):
            await desk.loop.run_once()
        await eventually("the caps are full", lambda: len(gate.started) == 6)

        await desk.admit("calm", an_event(account="c", text="calm"), an_event(account="c", text="calm"))

        async def others_run() -> bool:
            await desk.loop.run_once()
            return len(gate.started) == 8

        await eventually("the others run", others_run)

        assert max(gate.started.count("hot a"), gate.started.count("hot b")) <= 4
        assert gate.started.count("calm") == 2
        gate.open.set()
        await desk.loop.idle()


async def queue_in_bulk(desk: Desk, agent: str, account: str, lanes: int) -> None:
    """As many waiting lanes of one agent and account, as admission would leave them, in a few statements."""
    await desk.database.execute(
        "with made as (insert into lanes (key, kind, next_position)"
        " select sha256(('bulk' || $2 || $3 || n)::bytea), 'run', 2"
        " from generate_series(1, $1::integer) n returning id),"
        " queued as (insert into runs (id, lane_id, generation, position, agent, channel, account, event_id, event)"
        " select gen_random_uuid(), id, 0, 1, $2, 'lab', $3, 'bulk' || id, $4 from made returning lane_id)"
        " insert into ready (lane_id, agent, account, due_at)"
        " select lane_id, $2, 'lab/' || $3, parley_now() - interval '1 hour' from queued",
        lanes,
        agent,
        account,
        an_event(text="hot").encode(),
    )
    await desk.database.execute("analyze")


@pytest.mark.rule("EN-15")
@pytest.mark.parametrize(("hot", "other"), [(("echo", "a"), ("echo", "b")), (("echo", "a"), ("other", "a"))])
async def test_anothers_run_starts_next_beside_a_hundred_thousand(
    database_url: str, hot: tuple[str, str], other: tuple[str, str]
) -> None:
    started: list[str] = []

    async def runs(turn: Turn) -> None:
        started.append(turn.event.text)

    agents = [an_agent("echo", runs=runs), an_agent("other", runs=runs)]
    async with a_desk(database_url, *agents, caps=Caps(slots=1, per_agent=1, per_account=1)) as desk:
        await queue_in_bulk(desk, *hot, lanes=int(100_000 * SCALE))
        for _ in range(3):
            await desk.turn_once()

        await desk.admit(other[0], an_event(account=other[1], text="other"))
        before = len(started)
        await desk.turn_once()

    assert started[:before] == ["hot"] * before
    assert "other" in started[before:]


@pytest.mark.rule("EN-44")
async def test_open_runs_of_a_lane_begin_behind_the_last_that_was_settled(database_url: str) -> None:
    fails = {"second"}

    async def runs(turn: Turn) -> None:
        if turn.event.text in fails:
            raise ConnectionError

    async with a_desk(database_url, an_agent("echo", runs=runs, conversation=True, retries=3)) as desk:
        texts = ["first", "second", "third", "fourth"]
        made = await desk.admit("echo", *(an_event(chat="c", text=text) for text in texts))
        places = [(await desk.run(run_id))["position"] for run_id in made]
        await desk.work()
        assert [await desk.status(run_id) for run_id in made] == ["succeeded", *["queued"] * 3]
        assert (await desk.lane_of(made[0]))["head_position"] == places[0] + 1

        await cancel_runs(desk.database, [made[2]], "ann")
        assert (await desk.lane_of(made[0]))["head_position"] == places[0] + 1, (
            "one in the middle moves nothing"
        )

        fails.clear()
        await desk.database.execute("update runs set due_at = parley_now() where finished_at is null")
        await desk.database.execute("update ready set due_at = parley_now()")
        await desk.work()
        assert [await desk.status(run_id) for run_id in made] == [
            "succeeded",
            "succeeded",
            "cancelled",
            "succeeded",
        ]
        assert (await desk.lane_of(made[0]))["head_position"] == places[3] + 1


@pytest.mark.rule("EN-15")
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("slow", [0.0, 60.0], ids=["walks are slow", "walks are quick"])
async def test_rotation_comes_by_everybody(
    database_url: str, slots: int, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.turns.low_water.SLOW_SECONDS", slow)
    started: list[str] = []

    async def runs(turn: Turn) -> None:
        started.append(turn.event.account)

    accounts = [f"a{n}" for n in range(6)]
    caps = Caps(slots=slots, per_agent=slots, per_account=slots)
    async with a_desk(database_url, an_agent(runs=runs), caps=caps) as desk:
        await desk.admit("echo", *(an_event(account=account) for account in accounts for _ in range(4)))
        while len(started) < 12:
            await desk.turn_once()
            turns = [started.count(account) for account in accounts]
            assert max(turns) - min(turns) <= 1


@pytest.mark.rule("EN-15")
async def test_accounts_that_all_wait_hide_nobody_behind_them(database_url: str) -> None:
    started: list[str] = []

    async def runs(turn: Turn) -> None:
        started.append(turn.event.account)

    async with a_desk(database_url, an_agent("echo", runs=runs), an_agent("unknown")) as desk:
        await desk.admit("echo", *(an_event(account=f"a{n:03}") for n in range(150)))
        await desk.database.execute("update ready set due_at = parley_now() + interval '1 hour'")
        await desk.database.execute("update runs set due_at = parley_now() + interval '1 hour'")
        await desk.admit("echo", an_event(account="z"))

        for _ in range(3):
            await desk.turn_once()

    assert started == ["z"]


@pytest.mark.rule("EN-15")
async def test_agents_that_this_worker_does_not_know_hide_nobody(database_url: str) -> None:
    started: list[str] = []

    async def runs(turn: Turn) -> None:
        started.append(turn.event.account)

    async with (
        a_desk(database_url, an_agent("other")) as newer,
        a_desk(database_url, an_agent("zeta", runs=runs)) as desk,
    ):
        await newer.admit("other", *(an_event(account=f"a{n:03}") for n in range(150)))
        await desk.admit("zeta", an_event(account="z"))

        for _ in range(3):
            await desk.turn_once()

    assert started == ["z"]
