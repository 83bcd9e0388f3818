"""A session's lease: who may be taken over, and when, by the database's clock alone."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.clock import shift_clock, with_clock_off
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.turn_worker import Orders, a_worker
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.turns import store
from workers.turns.recovery import Recovered, Recovery
from workers.turns.session import EXIT_STUCK_LOOP
from workers.turns.store import SessionGone

LEASE = timedelta(seconds=2)


async def forever(turn: Turn) -> None:
    await asyncio.Event().wait()


async def sessions(desk: Desk) -> list[dict[str, object]]:
    return await desk.rows("select * from worker_sessions order by started_at")


@pytest.mark.rule("EN-17")
async def test_every_start_has_a_fresh_session_of_its_own_lease(database_url: str) -> None:
    for _ in range(2):
        async with a_desk(database_url) as desk:
            pass
    async with a_desk(database_url) as desk:
        rows = await sessions(desk)
        assert len({row["id"] for row in rows}) == 3
        assert await desk.value(
            "select bool_and(lease_until - started_at = interval '15 seconds') from worker_sessions"
        )


@pytest.mark.rule("EN-17")
async def test_the_lease_is_renewed_beside_a_busy_event_loop(database_url: str) -> None:
    async with a_desk(database_url, lease_for=timedelta(seconds=1)) as desk:
        [before] = await sessions(desk)

        deadline = asyncio.get_running_loop().time() + 0.7
        while asyncio.get_running_loop().time() < deadline:
            pass

        [after] = await sessions(desk)
        assert after["lease_until"] > before["lease_until"]  # type: ignore[operator]
        assert desk.left == []


@pytest.mark.rule("EN-17")
async def test_a_session_that_nobody_marked_renews_however_late(database_url: str) -> None:
    async with a_desk(database_url, lease_for=LEASE) as desk:
        await desk.database.execute(
            "update worker_sessions set lease_until = parley_now() - interval '1 day'"
        )

        await eventually(
            "renewed", lambda: desk.value("select bool_and(lease_until > parley_now()) from worker_sessions")
        )

        assert not desk.session.lost.is_set()


@pytest.mark.rule("EN-17")
async def test_a_marked_session_neither_renews_nor_claims(database_url: str) -> None:
    async with a_desk(database_url, an_agent(), lease_for=LEASE) as desk:
        await desk.admit("echo", an_event())
        await desk.database.execute("update worker_sessions set dead_at = parley_now()")

        with pytest.raises(SessionGone):
            await desk.loop.run_once()
        await eventually("it knows", desk.session.lost.is_set)

        assert await desk.statuses() == {"queued": 1}


@pytest.mark.rule("EN-17")
async def test_takeover_waits_for_a_claim_under_way_and_then_finds_what_it_took(database_url: str) -> None:
    agent = an_agent(runs=forever, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        [run_id] = await one.admit("echo", an_event())
        await one.lapse()
        commit = asyncio.Event()
        take, arrived = one.claims._take, asyncio.Event()

        async def slowly(*arguments: object) -> object:
            taken = await take(*arguments)  # type: ignore[arg-type]
            arrived.set()
            await commit.wait()
            return taken

        one.claims._take = slowly  # type: ignore[method-assign, assignment]
        claiming = asyncio.create_task(one.loop.run_once())
        await arrived.wait()

        assert await two.recovery.run_once() == Recovered()
        assert await one.value("select count(*) from worker_sessions where dead_at is not null") == 0
        commit.set()
        await claiming
        recovered = await two.recovery.run_once()

        assert (recovered.dead_sessions, recovered.released) == (1, 1)
        assert await one.status(run_id) == "interrupted"


@pytest.mark.rule("EN-17")
async def test_a_claim_waits_for_a_takeover_under_way_and_takes_nothing(database_url: str) -> None:
    async with a_desk(database_url, an_agent(), lease_for=LEASE) as desk:
        await desk.admit("echo", an_event())
        async with desk.database.transaction() as tx:
            await tx.execute("select from worker_sessions for update")
            await tx.execute("update worker_sessions set dead_at = parley_now()")
            claiming = asyncio.create_task(desk.loop.run_once())
            await eventually(
                "it waits",
                lambda: desk.value(
                    "select count(*) from pg_stat_activity"
                    " where datname = current_database() and wait_event_type = 'Lock' and query like '%key share%'"
                ),
            )

        with pytest.raises(SessionGone):
            await claiming
        assert await desk.value("select count(*) from turns") == 0


@pytest.mark.rule("EN-17")
async def test_what_a_dead_session_still_gets_is_found_by_the_next_sweep(database_url: str) -> None:
    agent = an_agent(conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as one,
        a_desk(database_url, agent, lease_for=LEASE) as two,
    ):
        [run_id] = await one.admit("echo", an_event())
        await one.lapse()
        assert (await two.recovery.run_once()).dead_sessions == 1
        lane = (await one.lane_of(run_id))["id"]
        async with one.database.transaction() as tx:
            heads = await store.read_heads(tx, [lane], timedelta(0))
            await store.take_lanes(tx, heads, [b"{}"], [b"d"], one.session.id)

        recovered = await two.recovery.run_once()

        assert (recovered.dead_sessions, recovered.released) == (0, 1)
        assert await one.status(run_id) == "interrupted"


@pytest.mark.rule("EN-17")
async def test_nobody_is_taken_over_in_the_first_lease_period_of_the_database(database_url: str) -> None:
    up_for = timedelta(days=1)
    async with a_desk(database_url, an_agent(runs=forever)) as desk:
        await desk.admit("echo", an_event())
        await desk.loop.run_once()
        await desk.lapse()
        recovery = Recovery(desk.database, desk.agents, lease_for=up_for)

        assert await recovery.run_once() == Recovered()
        await shift_clock(desk.database, up_for)

        recovered = await recovery.run_once()
        assert (recovered.dead_sessions, recovered.released) == (1, 1)


@pytest.mark.rule("EN-17", "EN-21")
async def test_who_comes_back_first_after_an_outage_takes_over_nobody(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_desk(database_url, an_agent(runs=forever), lease_for=LEASE) as desk:
        await desk.admit("echo", an_event())
        await desk.loop.run_once()
        await desk.lapse()
        fetch = desk.recovery._database.fetch

        async def unreachable(*arguments: object) -> object:
            raise ConnectionRefusedError

        monkeypatch.setattr(desk.recovery._database, "fetch", unreachable)
        await desk.database.execute(
            "update worker_sessions set lease_until = parley_now() + interval '1 minute'"
        )
        with pytest.raises(ConnectionRefusedError):
            await desk.recovery.run_once()
        monkeypatch.setattr(desk.recovery._database, "fetch", fetch)
        await desk.database.execute(
            "update worker_sessions set lease_until = parley_now() - interval '1 minute'"
        )

        assert await desk.recovery.run_once() == Recovered()

        async def taken_over() -> bool:
            return (await desk.recovery.run_once()).dead_sessions == 1

        await eventually("a lease later it may", taken_over, LEASE + timedelta(seconds=5))


@pytest.mark.rule("EN-17")
@pytest.mark.parametrize("off", [120, -120])
async def test_a_worker_whose_clock_is_off_steals_nothing_and_loses_nothing(
    database_url: str, tmp_path: Path, off: int
) -> None:
    async with (
        a_desk(database_url, an_agent(runs=forever, conversation=True), lease_for=LEASE) as desk,
        a_worker(
            Orders(database_url, str(tmp_path), lease_for=LEASE.total_seconds()), *with_clock_off(off)
        ) as worker,
    ):
        [held] = await desk.admit("echo", an_event(text="held"))
        await desk.loop.run_once()
        [other] = await desk.admit("echo", an_event(text="other"))
        await worker.works(lambda: answered(desk, other), timedelta(seconds=40))
        since = await desk.value("select parley_now()")

        async def leases_later() -> bool:
            return bool(await desk.value("select parley_now() - $1 > $2", since, 2 * LEASE))

        await eventually("two leases later", leases_later)

        assert await desk.value("select count(*) from worker_sessions where dead_at is not null") == 0
        assert (
            await desk.value(
                "select count(*) from worker_sessions where lease_until > parley_now() - interval '1 s'"
            )
            == 2
        )
        assert (await desk.run(held))["epoch"] == 1
        assert "loop_stuck" not in worker.log()
        assert await desk.value(
            "select max(abs(extract(epoch from started_at - now()))) < 60 from worker_sessions"
        )


async def answered(desk: Desk, run_id: object) -> bool:
    row = await desk.database.fetchrow("select status from runs where id = $1", run_id)
    return row is not None and row["status"] == "succeeded"


@pytest.mark.rule("EN-17")
async def test_a_loop_that_stands_still_for_a_lease_ends_the_process(
    database_url: str, tmp_path: Path
) -> None:
    async with a_desk(database_url, an_agent(conversation=True), lease_for=LEASE) as desk:
        [run_id] = await desk.admit("echo", an_event(text="block"))
        async with a_worker(Orders(database_url, str(tmp_path), lease_for=LEASE.total_seconds())) as worker:
            assert await worker.ended(timedelta(seconds=40)) == EXIT_STUCK_LOOP

        async def taken_over() -> bool:
            return (await desk.recovery.run_once()).released == 1

        await eventually("its turn is taken over", taken_over, LEASE + timedelta(seconds=5))
        assert (await desk.run(run_id))["crashes"] == 1


@pytest.mark.rule("EN-17")
async def test_a_process_that_was_stopped_is_not_taken_for_a_stuck_loop(
    database_url: str, tmp_path: Path
) -> None:
    """Nobody took it over meanwhile: it renews late and goes on with the same turn."""
    async with a_desk(database_url, an_agent(conversation=True)) as desk:
        [run_id] = await desk.admit("echo", an_event(text="end go"))
        async with a_worker(Orders(database_url, str(tmp_path), lease_for=1.0)) as worker:
            await eventually("it runs", lambda: (tmp_path / "started").exists(), timedelta(seconds=30))
            worker.send(signal.SIGSTOP)

            async def lapsed() -> bool:
                return bool(
                    await desk.value(
                        "select bool_or(lease_until < parley_now() - interval '1 second') from worker_sessions"
                    )
                )

            await eventually("its lease has run out", lapsed)
            worker.send(signal.SIGCONT)
            (tmp_path / "go").touch()

            await eventually("it ends its turn", lambda: answered(desk, run_id))

            assert "loop_stuck" not in worker.log()
            assert (await desk.run(run_id))["epoch"] == 1
