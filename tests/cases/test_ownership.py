"""Faults of ownership: who lost a run may write nothing of it, who lives keeps it, however long it takes."""

import asyncio
import signal
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.support.clock import with_clock_off
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.running import Site
from tests.support.turn_worker import Orders, Process, a_worker
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite
from workers.agents.turn import Turn

LEASE = timedelta(seconds=2)
BOOT = timedelta(seconds=40)
AFTER_LEASE = timedelta(seconds=5)
PATIENT = "tests.worker.apps:patient"


async def begun(site: Site, *words: str) -> None:
    await eventually(f"begun: {words}", lambda: [n for n in site.notes() if " began " in n] == list(words))


@pytest.mark.kafka
async def test_pb_11_a_frozen_owner_that_comes_back_changes_nothing_for_its_successor(
    make_site: MakeSite,
) -> None:
    """aegra/aegra pull 547: an attempt that lost its lease wrote on, since the owner's name was a host's name."""
    async with make_site(app=PATIENT, lease_seconds=LEASE.total_seconds()) as site:
        frozen = site.start(name="A")
        await site.publish(an_event(text="z1"))
        await begun(site, "A began z1")
        frozen.signal(signal.SIGSTOP)
        successor = site.start(name="B")
        await begun(site, "A began z1", "B began z1")
        await site.rows("update worker_sessions set worker = 'one host'")
        sessions = await site.rows("select dead_at is null as lives from worker_sessions")
        owner = await site.value(
            "select s.dead_at is null from turns t join worker_sessions s on s.id = session_id"
        )

        frozen.signal(signal.SIGCONT)
        await eventually("its loss is logged", lambda: b"session.lost" in frozen.life.log.read_bytes())
        await eventually("its turn was stopped", lambda: "A was stopped in z1" in site.notes())
        (Path(site.life.folder) / "go").touch()
        await site.settled(1)

        assert sorted(row["lives"] for row in sessions) == [False, True]
        assert owner
        assert site.texts() == ["B says z1"]
        assert await site.rows("select convert_from(body, 'UTF8') as body from deliveries") == [
            {"body": "B says z1"}
        ]
        assert await site.rows("select status, crashes from runs") == [{"status": "succeeded", "crashes": 1}]
        assert frozen.alive
        assert successor.alive


@pytest.mark.parametrize(
    ("frozen_at", "replies"),
    [("journal.before_commit", ["from B"]), ("settle.before_commit", ["answer to z1"])],
)
async def test_pb_11_an_owner_that_is_frozen_in_a_write_loses_it_or_has_made_it(
    database_url: str, tmp_path: Path, frozen_at: str, replies: list[str]
) -> None:
    """aegra/aegra pull 547, at the moments where the reply, and then the end, were about to be written."""
    may_answer = asyncio.Event()

    async def answers(turn: Turn) -> None:
        await may_answer.wait()
        await turn.reply("from B" if frozen_at == "journal.before_commit" else "answer to z1")

    orders = Orders(
        database_url,
        str(tmp_path),
        lease_for=LEASE.total_seconds(),
        at_point=frozen_at,
        signal=signal.SIGSTOP,
    )
    agent = an_agent(runs=answers, conversation=True)
    async with a_desk(database_url, agent, lease_for=LEASE) as desk:
        [run_id] = await desk.admit("echo", an_event(text="z1"))
        async with a_worker(orders) as worker:
            await eventually("it stands still", partial(stands_still, worker, tmp_path), BOOT)
            async with desk.running():
                await eventually("taken over", partial(is_owner, desk, run_id), LEASE + timedelta(seconds=12))
                worker.send(signal.SIGCONT)
                await eventually("it is told", lambda: "session.lost" in worker.log())
                owned = await is_owner(desk, run_id)
                may_answer.set()
                await eventually("it is over", partial(is_over, desk, run_id))

        assert owned
        assert await desk.status(run_id) == "succeeded"
        assert await desk.replies() == replies
        assert await desk.value("select count(*) from turns") == 0


async def stands_still(worker: Process, folder: Path) -> bool:
    return (folder / "started").exists() and worker.is_stopped


async def is_owner(desk: Desk, run_id: object) -> bool:
    row = await desk.database.fetchrow("select session_id from turns where run_id = $1", run_id)
    return row is not None and row[0] == desk.session.id


async def is_over(desk: Desk, run_id: object) -> bool:
    row = await desk.database.fetchrow("select finished_at is not null from runs where id = $1", run_id)
    return bool(row and row[0])


@pytest.mark.parametrize("off", [120, -120])
async def test_pb_13_a_lease_is_judged_by_one_clock_only(database_url: str, tmp_path: Path, off: int) -> None:
    """MailFathom issue 1989, occurrent issue 659: ahead stole living leases, behind left dead ones alone."""
    called: list[str] = []
    may_end = asyncio.Event()

    async def runs(turn: Turn) -> None:
        called.append(turn.event.text)
        await may_end.wait()

    agent = an_agent(runs=runs, conversation=True)
    orders = Orders(database_url, str(tmp_path), lease_for=LEASE.total_seconds())
    async with (
        a_desk(database_url, agent, lease_for=LEASE) as living,
        a_desk(database_url, agent, lease_for=LEASE) as dying,
        a_worker(orders, *with_clock_off(off)) as other,
    ):
        [k1] = await living.admit("echo", an_event(text="living"))
        await living.loop.run_once()
        [k2] = await dying.admit("echo", an_event(text="dying"))
        await dying.loop.run_once()
        await eventually("both run", lambda: sorted(called) == ["dying", "living"])
        [quick] = await living.admit("echo", an_event(text="quick"))
        await other.works(partial(is_over, living, quick), BOOT)
        since = await living.value("select parley_now()")
        assert await living.value("select count(*) from worker_sessions where dead_at is not null") == 0

        await dying.session.stop_renewing()
        await eventually("taken over", partial(is_over, living, k2), LEASE + timedelta(seconds=10))
        waited = await living.value("select parley_now() - $1", since)
        kept = await is_owner(living, k1)
        may_end.set()
        await living.loop.idle()

        assert waited > timedelta(seconds=0)
        assert kept
        assert called == ["living", "dying"]
        assert await living.value("select count(*) from worker_sessions where dead_at is not null") == 1
        assert (await living.run(k1))["status"] == "succeeded"
        assert await living.replies(k2) == ["answer to dying"]
        assert "loop_stuck" not in other.log()


@pytest.mark.kafka
@pytest.mark.parametrize("dies", [False, True], ids=["lives", "is killed"])
async def test_pb_15_a_long_run_is_left_to_its_living_owner_and_to_nobody_who_is_dead(
    make_site: MakeSite, dies: bool
) -> None:
    """riverqueue/river issues 682 and 347, oban issue 1141: a healthy job was rescued for being old, and ran twice."""
    async with make_site(app=PATIENT, lease_seconds=LEASE.total_seconds()) as site:
        owner = site.start(name="A")
        await site.publish(an_event(text="long"))
        await begun(site, "A began long")
        other = site.start(name="B")
        await other.serving()
        since = await site.value("select parley_now()")

        async def has_lasted() -> bool:
            return bool(await site.value("select parley_now() - $1::timestamptz > $2", since, 3 * LEASE))

        await eventually("it is older than every lease", has_lasted)
        assert site.notes() == ["A began long"]
        if dies:
            await owner.kill()
            await eventually("taken over", lambda: "B began long" in site.notes(), LEASE + AFTER_LEASE)
        (Path(site.life.folder) / "go").touch()
        await site.settled(1)

        begins = [note for note in site.notes() if " began " in note]
        assert begins == (["A began long", "B began long"] if dies else ["A began long"])
        assert site.texts() == (["B says long"] if dies else ["A says long"])
