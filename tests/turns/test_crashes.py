"""Workers are killed at every commit of a turn; their turns go on elsewhere, and only a poison run pays."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.turn_worker import Orders, a_worker
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.turns.policy import admits_suspect
from workers.turns.settle import Settlement

LEASE = timedelta(seconds=2)
BOOT = timedelta(seconds=40)
POINTS = [
    "claim.before_commit",
    "claim.committed",
    "journal.before_commit",
    "journal.committed",
    "settle.before_commit",
    "settle.committed",
]


async def forever(turn: Turn) -> None:
    await asyncio.Event().wait()


async def all_finished(desk: Desk) -> bool:
    return not await desk.value("select count(*) from runs where finished_at is null")


@pytest.mark.rule("EN-21", "EN-24")
@pytest.mark.parametrize("point", POINTS)
async def test_a_worker_killed_at_any_commit_loses_no_turn_and_repeats_no_reply(
    database_url: str, tmp_path: Path, point: str
) -> None:
    answered: list[str] = []

    async def answers(turn: Turn) -> None:
        answered.append(turn.event.text)
        await turn.reply(f"answer to {turn.event.text}")

    agent = an_agent(runs=answers, conversation=True)
    async with a_desk(database_url, agent, lease_for=LEASE) as desk:
        [run_id] = await desk.admit("echo", an_event(text="hello"))
        orders = Orders(database_url, str(tmp_path), lease_for=LEASE.total_seconds(), at_point=point)
        async with a_worker(orders) as worker:
            assert await worker.ended(BOOT) == -9
        before = await desk.turn_of(run_id)

        async with desk.running():
            await eventually("it is done", lambda: all_finished(desk), LEASE + timedelta(seconds=5))

        run = await desk.run(run_id)
        assert (run["status"], await desk.replies()) == ("succeeded", ["answer to hello"])
        assert run["crashes"] == (0 if before is None else 1)
        assert await desk.value("select count(*) from items where kind = 'input'") == 1
        assert answered == ([] if point == "settle.committed" else ["hello"])


@pytest.mark.rule("EN-21", "EN-16")
async def test_takeover_keeps_the_snapshot(database_url: str) -> None:
    histories: list[list[str]] = []

    async def runs(turn: Turn) -> None:
        histories.append([exchange.text for exchange in turn.history])
        if turn.event.text == "two" and len(histories) == 2:
            await asyncio.Event().wait()

    agent = an_agent(runs=runs, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        _, run_id = await one.admit("echo", an_event(chat="c", text="one"), an_event(chat="c", text="two"))
        await one.turn_once()
        await one.loop.run_once()
        await eventually("it runs", lambda: len(histories) == 2)
        first = await one.turn_of(run_id)
        await one.lapse()
        await two.recovery.run_once()
        between = await one.turn_of(run_id)
        await one.database.execute("update items set body = 'changed meanwhile'")

        claim = await two.claims.claim(two.session.id, [])

        again = await two.turn_of(run_id)
        assert claim.turns
        assert first and between and again  # noqa: PT018  # for the type checker
        assert first["snapshot_digest"] == between["snapshot_digest"] == again["snapshot_digest"]
        assert first["snapshot"] == again["snapshot"]
        assert (between["session_id"], again["session_id"]) == (None, two.session.id)
        assert first["epoch"] < again["epoch"]


@pytest.mark.rule("EN-21")
async def test_a_crash_of_many_charges_nobody_and_recovers_in_bulk(database_url: str) -> None:
    agent = an_agent(runs=forever, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        await one.admit("echo", *(an_event(account=f"a{n % 8}") for n in range(64)))
        while one.loop.active < 64:
            await one.loop.run_once()
        await one.lapse()

        recovered = await two.recovery.run_once()
        await two.loop.run_once()

        assert recovered.released == 64
        assert two.loop.active == 32
        assert await two.value("select min(crashes) = 1 and max(crashes) = 1 and max(attempts) = 0 from runs")


@pytest.mark.rule("EN-21")
@pytest.mark.parametrize(("crashes", "together"), [(1, 32), (2, 16), (3, 8), (5, 2), (6, 1), (9, 1)])
async def test_suspects_share_a_session_with_ever_fewer(
    database_url: str, crashes: int, together: int
) -> None:
    agent = an_agent(runs=forever, conversation=True)
    async with a_desk(database_url, agent) as desk:
        await desk.admit("echo", *(an_event(account=f"a{n % 8}") for n in range(40)))
        await desk.database.execute("update runs set crashes = $1", crashes)
        fresh = await desk.admit("echo", *(an_event(account=f"b{n % 8}") for n in range(20)))

        for _ in range(4):
            await desk.loop.run_once()

        running = await desk.rows("select id, crashes from runs where status = 'running'")
        assert len([run for run in running if run["crashes"]]) == together
        assert {run["id"] for run in running if not run["crashes"]} == set(fresh)
    assert admits_suspect(64, crashes, [crashes] * (together - 1))
    assert not admits_suspect(64, crashes, [crashes] * together)


@pytest.mark.rule("EN-21")
async def test_only_a_sole_suspect_is_charged_and_the_third_charge_fails_it(database_url: str) -> None:
    agent = an_agent(runs=forever, conversation=True)
    async with a_desk(database_url, agent, lease_for=LEASE) as watcher:
        [suspect] = await watcher.admit("echo", an_event(text="suspect"))
        charged = []
        for crash in range(3):
            [fresh] = await watcher.admit("echo", an_event(text="fresh"))
            async with a_desk(database_url, agent, lease_for=LEASE) as worker:
                while worker.loop.active < (2 if crash else 1):
                    if crash == 0:
                        await watcher.database.execute(
                            "delete from ready where lane_id = (select lane_id from runs where id = $1)",
                            fresh,
                        )
                    await worker.loop.run_once()
                await worker.lapse()
                await watcher.recovery.run_once()
            charged.append((await watcher.run(suspect))["attempts"])
            await watcher.database.execute(
                "delete from ready where lane_id = (select lane_id from runs where id = $1)", fresh
            )
            assert (await watcher.run(fresh))["attempts"] == 0

        run = await watcher.run(suspect)
        assert charged == [1, 2, 2]
        assert (run["status"], run["reason"], run["crashes"]) == ("failed", "attempts exhausted", 2)
        assert await watcher.turn_of(suspect) is None


@pytest.mark.rule("EN-21")
async def test_two_suspects_in_one_crash_are_both_free_of_charge(database_url: str) -> None:
    agent = an_agent(runs=forever, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        await one.admit("echo", an_event(), an_event())
        await one.database.execute("update runs set crashes = 1")
        await one.loop.run_once()
        assert one.loop.active == 2
        await one.lapse()

        await two.recovery.run_once()

        assert await two.value("select min(crashes) = 2 and max(crashes) = 2 and max(attempts) = 0 from runs")


@pytest.mark.rule("EN-21")
async def test_a_suspect_that_is_not_settled_keeps_others_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_desk(database_url, an_agent(conversation=True)) as desk:
        await desk.admit("echo", an_event(), an_event())
        await desk.database.execute("update runs set crashes = 6")
        settle, may_settle, asked = desk.settlements.settle, asyncio.Event(), asyncio.Event()

        async def late(settlement: Settlement) -> None:
            asked.set()
            await may_settle.wait()
            await settle(settlement)

        monkeypatch.setattr(desk.settlements, "settle", late)
        await desk.loop.run_once()
        await asyncio.wait_for(asked.wait(), 10)
        await shift_clock(desk.database, timedelta(seconds=2))
        await desk.loop.run_once()
        alone = desk.loop.active
        may_settle.set()
        await desk.loop.idle()

        assert alone == 1


@pytest.mark.rule("EN-21")
async def test_an_exhausted_head_lets_the_next_one_of_its_conversation_run(database_url: str) -> None:
    agent = an_agent(runs=forever, conversation=True, max_crash_attempts=1)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        head, behind = await one.admit("echo", an_event(chat="c"), an_event(chat="c"))
        await one.loop.run_once()
        await one.lapse()

        recovered = await two.recovery.run_once()
        await two.loop.run_once()

        assert recovered.exhausted == 1
        assert await two.status(head) == "failed"
        assert await two.status(behind) == "running"


@pytest.mark.rule("EN-21")
async def test_two_recoveries_at_once_charge_once(database_url: str) -> None:
    agent = an_agent(runs=forever, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
        a_desk(database_url, agent, lease_for=LEASE) as three,
    ):
        [run_id] = await one.admit("echo", an_event())
        await one.loop.run_once()
        await one.lapse()

        results = await asyncio.gather(*(desk.recovery.run_once() for desk in (two, three) for _ in range(3)))

        run = await one.run(run_id)
        assert sum(result.released for result in results) == 1
        assert (run["crashes"], run["attempts"]) == (1, 1)


@pytest.mark.rule("EN-21")
async def test_a_poison_run_among_twenty_good_ones_fails_alone(database_url: str, tmp_path: Path) -> None:
    orders = Orders(database_url, str(tmp_path), lease_for=1.0, slots=8)
    async with a_desk(database_url, an_agent(conversation=True), lease_for=timedelta(seconds=1)) as desk:
        events = [an_event(account=f"a{n % 5}", text=f"good {n}") for n in range(20)]
        good = await desk.admit("echo", *events[:10])
        [poison] = await desk.admit("echo", an_event(account="p", text="kill"))
        good += await desk.admit("echo", *events[10:])
        lives = 0
        while not await all_finished(desk):
            lives += 1
            assert lives <= 12, await desk.rows(
                "select status, crashes, attempts, count(*) from runs group by 1, 2, 3"
            )
            async with a_worker(orders) as worker:
                ended = asyncio.create_task(worker.ended(timedelta(minutes=3)))

                async def dead_or_done(ended: "asyncio.Task[int]" = ended) -> bool:
                    return ended.done() or await all_finished(desk)

                await eventually("it dies, or all is done", dead_or_done, timedelta(minutes=2))
                ended.cancel()

        bad = await desk.run(poison)
        assert (bad["status"], bad["reason"]) == ("failed", "attempts exhausted")
        assert await desk.value("select count(*) from runs where status = 'succeeded'") == len(good) == 20
        assert await desk.value("select max(attempts) from runs where status = 'succeeded'") == 0
        assert sorted(await desk.replies()) == sorted(f"answer to good {n}" for n in range(20))
