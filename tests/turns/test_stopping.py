"""A turn that is stopped, stops itself, or is left over, ends once and leaves its conversation free."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.faults import Faults
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.memory.access import Access, Allow
from workers.turns import store


async def is_over(desk: Desk, run_id: object) -> bool:
    row = await desk.database.fetchrow("select finished_at is not null from runs where id = $1", run_id)
    return bool(row and row[0])


async def forever(turn: Turn) -> None:
    await asyncio.Event().wait()


@pytest.mark.rule("EN-20")
async def test_a_turn_longer_than_lease_and_poll_runs_once_and_delays_nobody(database_url: str) -> None:
    ran: list[str] = []
    gate = asyncio.Event()

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.text)
        if turn.event.text == "long":
            await gate.wait()

    lease = timedelta(seconds=1)
    agent = an_agent(runs=runs, conversation=True)
    async with (
        a_desk(database_url, agent, lease_for=lease, poll_every=timedelta(milliseconds=20)) as one,
        a_desk(database_url, agent, lease_for=lease, poll_every=timedelta(milliseconds=20)) as two,
        one.running(),
        two.running(),
    ):
        [long] = await one.admit("echo", an_event(text="long"))
        await eventually("it runs", lambda: ran == ["long"])
        renewals = await one.rows("select id, lease_until from worker_sessions")

        async def leases_went_by() -> bool:
            now = {
                row["id"]: row["lease_until"]
                for row in await one.rows("select id, lease_until from worker_sessions")
            }
            return all(now[row["id"]] - row["lease_until"] > 2 * lease for row in renewals)

        await eventually("leases were renewed", leases_went_by)
        others = await one.admit("echo", *(an_event(text="short") for _ in range(10)))
        await eventually("the others are done", lambda: len(ran) == 11)
        gate.set()
        await eventually("it is done", lambda: is_over(one, long))

        assert ran.count("long") == 1
        assert (await one.run(long))["status"] == "succeeded"
        assert (await one.run(long))["epoch"] == 1
        assert len(others) == 10


@pytest.mark.rule("EN-20", "EN-23")
async def test_a_turn_timeout_is_final_and_is_told_once(database_url: str) -> None:
    agent = an_agent(runs=forever, conversation=True, timeout=timedelta(milliseconds=200), on_failure="sorry")
    async with a_desk(database_url, agent, poll_every=timedelta(milliseconds=5)) as desk, desk.running():
        first, second = await desk.admit("echo", an_event(chat="c"), an_event(chat="c"))
        await eventually("both ran out of time", lambda: is_over(desk, second))

        run = await desk.run(first)
        assert (run["status"], run["reason"], run["retries"]) == ("failed", "turn timeout", 0)
        assert await desk.replies(first) == ["sorry"]
        assert await desk.value("select count(*) from deliveries where recalled") == 0


@pytest.mark.rule("EN-20", "EN-23")
async def test_a_timeout_while_the_database_is_slow_still_ends_the_turn(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, arrived = asyncio.Event(), asyncio.Event()
    insert_steps = store.insert_steps

    async def wait_first(*arguments: object) -> None:
        arrived.set()
        await slow.wait()
        await insert_steps(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "insert_steps", wait_first)
    agent = an_agent(runs=forever, conversation=True, timeout=timedelta(milliseconds=50), on_failure="sorry")
    async with a_desk(database_url, agent, poll_every=timedelta(milliseconds=5)) as desk, desk.running():
        [run_id] = await desk.admit("echo", an_event())
        await asyncio.wait_for(arrived.wait(), 10)
        for _ in range(5):
            await desk.loop.look_after()
            await asyncio.sleep(0)
        slow.set()

        await eventually("the turn has ended", lambda: is_over(desk, run_id))

        assert (await desk.run(run_id))["reason"] == "turn timeout"
        assert await desk.replies() == ["sorry"]


@pytest.mark.rule("EN-23")
async def test_an_agent_that_cancels_itself_fails_and_holds_nobody_up(database_url: str) -> None:
    async def runs(turn: Turn) -> None:
        if turn.event.text == "bad":
            inner = asyncio.create_task(asyncio.Event().wait())
            inner.cancel()
            await inner

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        bad, good = await desk.admit("echo", an_event(chat="c", text="bad"), an_event(chat="c"))

        await desk.work()

        assert (await desk.run(bad))["reason"] == "CancelledError"
        assert await desk.status(good) == "succeeded"


class Aborted(BaseException):
    """What some libraries raise past every `except Exception`."""


@pytest.mark.rule("EN-23")
@pytest.mark.parametrize("raised", [Aborted, SystemExit, GeneratorExit])
async def test_an_agent_that_raises_past_exception_fails_once_and_ends_nothing_else(
    database_url: str, raised: type[BaseException]
) -> None:
    ran: list[str] = []

    async def runs(turn: Turn) -> None:
        ran.append(turn.event.text)
        if turn.event.text == "bad":
            raise raised("words of a user")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        bad, good = await desk.admit("echo", an_event(chat="c", text="bad"), an_event(chat="c", text="good"))

        await desk.work()

        assert (await desk.run(bad))["reason"] == raised.__name__
        assert await desk.status(good) == "succeeded"
        assert ran == ["bad", "good"]


@pytest.mark.rule("EN-14", "EN-21")
async def test_an_outage_while_the_journal_is_read_charges_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_steps = store.read_steps
    failures = [asyncpg.ConnectionDoesNotExistError("injected"), TimeoutError(), ConnectionResetError()]

    async def failing(*arguments: object) -> object:
        if failures:
            raise failures.pop()
        return await read_steps(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read_steps", failing)

    async def runs(turn: Turn) -> None:
        await turn.reply("done")

    agent = an_agent(runs=runs, conversation=True)
    async with a_desk(database_url, agent) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.loop.run_once()
        desk.loop.stop_all("released")
        await desk.loop.idle()

        for _ in range(4):
            await desk.work()
            await shift_clock(desk.database, timedelta(seconds=5))

        run = await desk.run(run_id)
        assert (run["status"], run["retries"], run["crashes"], run["attempts"]) == ("succeeded", 0, 0, 0)
        assert failures == []


@pytest.mark.rule("EN-21")
async def test_a_drain_lets_turns_finish_releases_the_rest_and_charges_nothing(database_url: str) -> None:
    gate = asyncio.Event()

    async def runs(turn: Turn) -> None:
        await (gate.wait() if turn.event.text == "quick" else asyncio.Event().wait())

    agent = an_agent(runs=runs, conversation=True)
    async with a_desk(database_url, agent) as desk:
        [quick, slow] = await desk.admit("echo", an_event(text="quick"), an_event(text="slow"))
        await desk.loop.run_once()
        turn = await desk.turn_of(slow)
        assert turn is not None
        draining = asyncio.create_task(desk.loop.drain(timedelta(seconds=1)))
        gate.set()

        assert await draining == 0

        assert await desk.status(quick) == "succeeded"
        run = await desk.run(slow)
        assert (run["status"], run["retries"], run["crashes"], run["attempts"]) == ("interrupted", 0, 0, 0)
        released = await desk.turn_of(slow)
        assert released is not None
        assert released["session_id"] is None
        assert released["snapshot_digest"] == turn["snapshot_digest"]
        assert await desk.due() == 1


@pytest.mark.rule("EN-21")
async def test_a_drain_releases_an_agent_that_makes_another_error_of_its_cancellation(
    database_url: str,
) -> None:
    async def runs(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("interrupted") from None

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.loop.run_once()

        assert await desk.loop.drain(timedelta(milliseconds=50)) == 0

        run = await desk.run(run_id)
        assert (run["status"], run["retries"], run["reason"]) == ("interrupted", 0, "released")


@pytest.mark.rule("EN-21")
async def test_a_claim_under_way_at_a_drain_is_released_too(database_url: str) -> None:
    async with a_desk(database_url, an_agent(runs=forever, conversation=True)) as desk:
        [run_id] = await desk.admit("echo", an_event())
        claim = desk.claims.claim
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def late(*arguments: object, **named: object) -> object:
            arrived.set()
            await go_on.wait()
            return await claim(*arguments, **named)  # type: ignore[arg-type]

        desk.claims.claim = late  # type: ignore[method-assign, assignment]
        running = asyncio.create_task(desk.loop.run())
        await arrived.wait()
        draining = asyncio.create_task(desk.loop.drain(timedelta(milliseconds=500)))
        await asyncio.sleep(0)
        go_on.set()

        assert await draining == 0
        await running

        assert await desk.status(run_id) == "interrupted"
        assert await desk.value("select count(*) from turns where session_id is not null") == 0


@pytest.mark.rule("EN-21")
async def test_a_drain_ends_with_a_last_turn_that_ends_while_it_looks_for_cancellations(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()

    async def runs(turn: Turn) -> None:
        await gate.wait()

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.loop.run_once()

        async def slow(*arguments: object) -> list[object]:
            gate.set()
            await desk.loop.idle()
            return []

        monkeypatch.setattr(store, "read_cancelled", slow)

        assert await desk.loop.drain(timedelta(seconds=5)) == 0
        assert await desk.status(run_id) == "succeeded"


@pytest.mark.rule("EN-24")
async def test_a_retry_whose_commit_was_not_heard_is_own_success(database_url: str) -> None:
    faults = Faults()

    async def runs(turn: Turn) -> None:
        raise ConnectionError

    async with a_desk(database_url, an_agent(runs=runs, conversation=True), reached=faults) as desk:
        [run_id] = await desk.admit("echo", an_event())
        faults.fail("settle.committed", ConnectionResetError())

        await desk.turn_once()

        assert (await desk.run(run_id))["retries"] == 1
        assert b'outcome="lost"' not in desk.metrics.render()


@pytest.mark.rule("EN-23")
async def test_a_policy_that_fails_backs_off_in_place(database_url: str) -> None:
    answers = [ValueError(), ValueError()]

    async def authorize(access: Access) -> Allow:
        if answers:
            raise answers.pop()
        return Allow()

    async def runs(turn: Turn) -> None:
        await turn.reply("done")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True), authorize=authorize) as desk:
        [run_id] = await desk.admit("echo", an_event())
        for _ in range(3):
            await desk.work()
            await shift_clock(desk.database, timedelta(seconds=10))

        run = await desk.run(run_id)
        assert (run["status"], run["retries"], run["attempts"]) == ("succeeded", 2, 0)


async def test_a_policy_that_answers_neither_way_opens_no_notes(database_url: str) -> None:
    refused: list[str] = []

    async def authorize(access: Access) -> Allow:
        return Allow() if access.purpose == "recall" else None  # type: ignore[return-value]

    async def runs(turn: Turn) -> None:
        try:
            await turn.set_note("diet", "vegetarian")
        except Exception as error:
            refused.append(type(error).__name__)

    async with a_desk(database_url, an_agent(runs=runs, conversation=True), authorize=authorize) as desk:
        await desk.admit("echo", an_event())

        await desk.work()

        assert refused == ["PolicyUnavailable"]
        assert await desk.value("select count(*) from notes") == 0
