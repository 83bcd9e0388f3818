"""Note edits of workers that are killed: each happens once, and what is kept to know that holds no body."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.memory.note_worker import SAID, a_note_taker
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.turn_worker import Orders, a_worker
from tests.support.waiting import eventually
from workers.agents.agent import Agent
from workers.agents.turn import Turn

LEASE = timedelta(seconds=2)
BOOT = timedelta(seconds=40)
EVERY_COLUMN = {
    "note_operations": "select o::text || ' ' || o.receipt::text as everything from note_operations o",
    "run_steps": "select s.kind, s.name, s::text || ' ' || coalesce(encode(s.result, 'escape'), '') as everything"
    " from run_steps s order by step, call",
}


async def recovers(desk: Desk) -> None:
    async def finished() -> Any:
        return not await desk.value("select count(*) from runs where finished_at is null")

    async with desk.running():
        await eventually("the run has ended", finished, LEASE + timedelta(seconds=10))


async def notes_of(desk: Desk) -> dict[str, str]:
    return {row["key"]: row["body"] for row in await desk.rows("select key, body from notes order by key")}


@pytest.mark.rule("CM-74", "CM-57")
async def test_tool_calls_of_a_worker_killed_between_edit_and_record_edit_once(
    database_url: str, tmp_path: Path
) -> None:
    async with a_desk(database_url, a_note_taker(), lease_for=LEASE) as desk:
        [run_id] = await desk.admit("echo", an_event())
        orders = Orders(
            database_url,
            str(tmp_path),
            lease_for=LEASE.total_seconds(),
            at_point="journal.before_commit",
            nth=2,
        )
        async with a_worker(orders, module="tests.memory.note_worker") as worker:
            assert await worker.ended(BOOT) == -9, worker.log()
        done = await notes_of(desk)
        assert done, "an edit was committed"
        assert await desk.value("select count(*) from run_steps where kind = 'tool'") < len(done)
        await desk.database.execute("update notes set body = 'changed since'")

        await recovers(desk)

        run = await desk.run(run_id)
        assert (run["status"], run["crashes"]) == ("succeeded", 1)
        assert await notes_of(desk) == {
            f"k{n}": "changed since" if f"k{n}" in done else text for n, text in enumerate(SAID)
        }
        operations = await desk.rows("select step, call, act, key from note_operations order by step, call")
        assert [tuple(each.values()) for each in operations] == [
            (0, 1001, "set", "k0"),
            (0, 2001, "set", "k1"),
        ]
        results = await desk.rows("select result from run_steps where kind = 'tool' order by call")
        assert [b'"saved":true' in row["result"] for row in results] == [True, True]


@pytest.mark.rule("CM-74")
async def test_a_function_agents_edit_is_made_once_by_a_worker_killed_before_its_record(
    database_url: str, tmp_path: Path
) -> None:
    async def notes(turn: Turn) -> None:
        await turn.set_note("key", "text")

    async with a_desk(database_url, an_agent(runs=notes, conversation=True), lease_for=LEASE) as desk:
        [run_id] = await desk.admit("echo", an_event(text="note go"))
        (tmp_path / "go").touch()
        orders = Orders(
            database_url, str(tmp_path), lease_for=LEASE.total_seconds(), at_point="journal.before_commit"
        )
        async with a_worker(orders) as worker:
            assert await worker.ended(BOOT) == -9, worker.log()
        assert await notes_of(desk) == {"key": "text"}
        await desk.database.execute("update notes set body = 'changed since'")

        await recovers(desk)

        assert await desk.status(run_id) == "succeeded"
        assert await notes_of(desk) == {"key": "changed since"}
        assert await desk.value("select count(*) from note_operations") == 1


@pytest.mark.rule("CM-57")
async def test_of_a_saved_note_only_the_models_own_answer_keeps_the_text(database_url: str) -> None:
    async with a_desk(database_url, a_note_taker()) as desk:
        await desk.admit("echo", an_event())
        await desk.work()
        assert await notes_of(desk) == {f"k{n}": text for n, text in enumerate(SAID)}

        receipts = await desk.rows(EVERY_COLUMN["note_operations"])
        steps = await desk.rows(EVERY_COLUMN["run_steps"])

        assert len(receipts) == 2
        assert not any(text in row["everything"] for row in receipts for text in SAID)
        holding = [row["kind"] for row in steps if any(text in row["everything"] for text in SAID)]
        assert holding == ["model"]
        assert [row["name"] for row in steps if row["kind"] == "tool"] == ["memory_set", "memory_set"]


def secretive(seen: list[object]) -> Agent:
    async def notes(turn: Turn) -> None:
        seen.append(await turn.set_note("k", SAID[0], timedelta(hours=1)))
        seen.append(await turn.remove_note("k"))

    return an_agent(runs=notes, conversation=True)


@pytest.mark.rule("CM-57")
async def test_a_function_agents_journal_and_receipts_hold_metadata_alone(database_url: str) -> None:
    seen: list[object] = []
    async with a_desk(database_url, secretive(seen)) as desk:
        await desk.admit("echo", an_event())
        await desk.work()

        rows = [row["everything"] for query in EVERY_COLUMN.values() for row in await desk.rows(query)]

        assert len(rows) == 2 + 2
        assert not any(SAID[0] in row for row in rows)
        [written, removed] = seen
        assert (written.act, written.body_bytes, written.created) == ("set", len(SAID[0]), True)  # type: ignore[attr-defined]
        assert (removed.act, removed.changed, removed.body_bytes) == ("remove", True, 0)  # type: ignore[attr-defined]
        assert SAID[0] not in repr(seen)


@pytest.mark.rule("CM-74", "EN-22")
@pytest.mark.parametrize(
    ("on_change", "ended", "kept"),
    [("fail", ("failed", "replay_diverged"), ["k0"]), ("continue", ("succeeded", None), ["k0", "k1"])],
)
async def test_a_step_that_edits_another_note_when_it_runs_again_gets_no_receipt_of_the_first(
    database_url: str, on_change: str, ended: tuple[str, str | None], kept: list[str]
) -> None:
    lives: list[str] = []

    async def notes(turn: Turn) -> None:
        async def edit() -> None:
            lives.append(f"k{len(lives)}")
            await turn.set_note(lives[-1], "v")
            if len(lives) == 1:
                raise ConnectionError

        await turn.step("edit", edit)

    agent = an_agent(runs=notes, conversation=True, on_change=on_change)
    async with a_desk(database_url, agent) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.work()
        for table in ("runs", "ready"):
            await desk.database.execute(f"update {table} set due_at = parley_now()")
        await desk.work()

        run = await desk.run(run_id)
        assert (run["status"], run["reason"]) == ended
        assert await notes_of(desk) == dict.fromkeys(kept, "v")
