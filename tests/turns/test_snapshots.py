"""A turn's view of the past is frozen before its first step, outlives every crash, and ends with its turn."""

import ast
import asyncio
import hashlib
import importlib.util
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessagesTypeAdapter

from tests.agents.doubles import StrictModel, calls, user_texts
from tests.support import delivery
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership
from workers.agents.tools import memory_tools, reply_tools
from workers.agents.turn import Turn
from workers.channels.lab import LabChannel
from workers.memory import snapshot
from workers.memory.snapshot import Snapshot

LEASE = timedelta(seconds=2)
HELD = "hold"


def a_model_agent(model: StrictModel, held: asyncio.Event) -> Agent:
    """Replies and keeps notes by tools; its tool `hold` never returns once `held` is set to be so."""
    runs = ModelAgent(model.model, deps_type=Turn, toolsets=[memory_tools(), reply_tools()])

    @runs.tool_plain(name=HELD)
    async def hold() -> str:
        held.set()
        await asyncio.Event().wait()
        return "never"

    return an_agent("helper", runs=runs, conversation=True)


def contents(messages: list[Any]) -> list[list[Any]]:
    """What a provider was handed, without the times at which our side made the messages."""
    dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [
        [[part["part_kind"], part.get("content"), part.get("args")] for part in message["parts"]]
        for message in dumped
    ]


async def one_past(desk: Desk, out: delivery.Desk, model: StrictModel) -> None:
    """A first turn that noted and replied, sent."""
    model.answers[:] = [calls(("memory_set", {"key": "city", "text": "Kyoto"}), ("reply", {"text": "noted"}))]
    await desk.admit("helper", an_event(chat="c", text="I live in Kyoto"))
    await desk.work()
    await out.send()


async def begins_to_hold(desk: Desk, held: asyncio.Event) -> None:
    """Recover and claim until a turn stands in its tool `hold`."""

    async def holds() -> bool:
        await desk.recovery.run_once()
        await desk.loop.run_once()
        return held.is_set()

    await eventually("it holds", holds)


async def takes_over(desk: Desk) -> bool:
    return (await desk.recovery.run_once()).released == 1


@pytest.mark.rule("CM-38", "CM-39")
async def test_a_run_that_dies_after_its_first_model_step_resumes_with_the_same_bytes_and_messages(
    database_url: str,
) -> None:
    dying, surviving = StrictModel(), StrictModel()
    held = asyncio.Event()
    async with (
        a_desk(database_url, a_model_agent(dying, held), lease_for=LEASE) as one,
        a_desk(database_url, a_model_agent(surviving, held), lease_for=LEASE) as two,
        delivery.a_desk(database_url, LabChannel()) as out,
    ):
        await one_past(one, out, dying)
        dying.seen.clear()
        dying.answers[:] = [calls((HELD, {}))]
        [run_id] = await one.admit("helper", an_event(chat="c", text="where do I live?"))
        await begins_to_hold(one, held)
        before = await one.turn_of(run_id)
        await one.lapse()
        lane_id = (await two.lane_of(run_id))["id"]
        await two.database.execute("update notes set body = 'Osaka', updated_at = parley_now()")
        await two.database.execute(
            "insert into notes (lane_id, generation, key, body, body_bytes) values ($1, 0, 'new', 'n', 1)",
            lane_id,
        )
        await two.database.execute("update items set body = 'rewritten' where kind = 'input'")
        await two.database.execute("delete from items where kind = 'reply'")
        held.clear()
        surviving.answers[:] = [calls((HELD, {}))]
        await begins_to_hold(two, held)
        after = await two.turn_of(run_id)

        assert before and after  # noqa: PT018  # for the type checker
        assert after["snapshot"] == before["snapshot"]
        assert hashlib.sha256(after["snapshot"]).digest() == after["snapshot_digest"]
        assert after["snapshot_digest"] == before["snapshot_digest"]
        assert after["epoch"] > before["epoch"]
        frozen = snapshot.decode(after["snapshot"], after["snapshot_digest"])
        assert [exchange.text for exchange in frozen.history] == ["I live in Kyoto", "noted"]
        [first], [resumed] = dying.seen, surviving.seen
        assert contents(resumed)[: len(first)] == contents(first)
        assert "Kyoto" in user_texts(first)[0]
        assert user_texts(resumed)[-1] == "where do I live?"
        assert "interrupted, outcome unknown" in str(contents(resumed)[-1])


@pytest.mark.rule("CM-39", "CM-26")
async def test_a_snapshot_holds_neither_its_own_event_nor_what_its_own_run_does(database_url: str) -> None:
    frozen: list[tuple[bytes, ...]] = []

    async def runs(turn: Turn) -> None:
        row = await desk.turn_of(turn.run_id)
        await turn.set_note("city", turn.event.text)
        await turn.reply("answer")
        assert turn.snapshot is not None
        later = await desk.turn_of(turn.run_id)
        assert row and later  # noqa: PT018  # for the type checker
        frozen.append((row["snapshot"], later["snapshot"], snapshot.encode(turn.snapshot)))

    async with a_desk(database_url, an_agent("helper", runs=runs, conversation=True)) as desk:
        await desk.admit("helper", an_event(chat="c", text="Kyoto"))
        await desk.work()

    assert frozen == [(snapshot.encode(Snapshot()),) * 3]


async def fails(turn: Turn) -> None:
    raise ValueError("for good")


async def ends(turn: Turn) -> None:
    await turn.reply("done")


async def two_released(desk: Desk) -> list[UUID]:
    """Two runs of two conversations, frozen by a claim and let go of."""
    runs = [(await desk.admit("helper", an_event(chat=chat)))[0] for chat in ("a", "b")]
    claim = await desk.claims.claim(desk.session.id, [])
    assert len(claim.turns) == 2
    await desk.claims.give_back(desk.session.id, [])
    return runs


SET_SNAPSHOT = "update turns set snapshot = $2, snapshot_digest = $3 where run_id = $1"


@pytest.mark.rule("CM-39", "CM-73")
async def test_a_run_whose_frozen_bytes_have_changed_ends_and_holds_nobody_up(database_url: str) -> None:
    async with a_desk(database_url, an_agent("helper", runs=ends, conversation=True)) as desk:
        [damaged, whole] = await two_released(desk)
        await desk.database.execute(
            "update turns set snapshot = $2 where run_id = $1",
            damaged,
            snapshot.encode(Snapshot(omitted_notes=1)),
        )

        await desk.work()

        assert [await desk.status(run) for run in (damaged, whole)] == ["failed", "succeeded"]
        assert (await desk.run(damaged))["reason"].startswith("snapshot unreadable: ")
        assert await desk.turn_of(damaged) is None


@pytest.mark.rule("EN-49")
async def test_a_run_that_a_newer_worker_froze_is_left_to_it_and_holds_nobody_up(database_url: str) -> None:
    newer = snapshot.encode(Snapshot()).replace(b'"version":1', b'"version":2')
    async with a_desk(database_url, an_agent("helper", runs=ends, conversation=True)) as desk:
        [froze_newer, own] = await two_released(desk)
        await desk.database.execute(SET_SNAPSHOT, froze_newer, newer, snapshot.digest(newer))

        await desk.work()

        assert [await desk.status(run) for run in (froze_newer, own)] == ["interrupted", "succeeded"]
        turn = await desk.turn_of(froze_newer)
        assert turn is not None
        assert (turn["snapshot"], turn["session_id"]) == (newer, None)
        await desk.database.execute(
            SET_SNAPSHOT,
            froze_newer,
            snapshot.encode(Snapshot()),
            snapshot.digest(snapshot.encode(Snapshot())),
        )
        await desk.database.execute("update ready set due_at = parley_now()")
        await desk.work()
        assert await desk.status(froze_newer) == "succeeded"


@pytest.mark.rule("CM-75", "CM-38")
@pytest.mark.parametrize(("runs", "status"), [(ends, "succeeded"), (fails, "failed")])
async def test_the_snapshot_goes_with_the_settlement_and_an_ended_run_finds_none(
    database_url: str, runs: Any, status: str
) -> None:
    turns: list[Turn] = []
    held: list[int] = []

    async def watched(turn: Turn) -> None:
        turns.append(turn)
        await turn.set_note("k", "v")
        held.append(await desk.value("select count(*) from turns where snapshot is not null"))
        await runs(turn)

    async with a_desk(database_url, an_agent("helper", runs=watched, conversation=True)) as desk:
        [run_id] = await desk.admit("helper", an_event(chat="c"))
        await desk.work()
        lane = await desk.lane_of(run_id)

        assert (await desk.status(run_id), held) == (status, [1])
        assert await desk.turn_of(run_id) is None
        assert lane["owner_run"] is None
        with pytest.raises(LostOwnership):
            await turns[0].get_note("k")
        with pytest.raises(LostOwnership):
            await turns[0].set_note("k", "late")
        await desk.database.execute(
            "insert into ready (lane_id, agent, account, due_at) values ($1, 'helper', 'a', parley_now())",
            lane["id"],
        )
        claim = await desk.claims.claim(desk.session.id, [])
        assert list(claim.turns) == [], "what has ended is not run again from any snapshot"
        places = await desk.rows(
            "select table_name, column_name from information_schema.columns"
            " where table_schema = 'public' and column_name like '%snapshot%' order by 2"
        )
        assert [(row["table_name"], row["column_name"]) for row in places] == [
            ("turns", "snapshot"),
            ("turns", "snapshot_digest"),
        ]


@pytest.mark.rule("CM-75")
async def test_a_settlement_that_does_not_commit_leaves_snapshot_and_owner(database_url: str) -> None:
    refused: list[str] = []
    refusing = True

    def reached(point: str) -> None:
        if point == "settle.before_commit" and refusing:
            refused.append(point)
            raise ConnectionResetError

    async with a_desk(
        database_url, an_agent("helper", runs=ends, conversation=True), reached=reached
    ) as desk:
        [run_id] = await desk.admit("helper", an_event(chat="c"))
        await desk.loop.run_once()
        await eventually("it would settle", lambda: len(refused) >= 2)
        turn, lane = await desk.turn_of(run_id), await desk.lane_of(run_id)
        assert turn is not None
        assert turn["snapshot"] is not None
        assert (lane["owner_run"], await has_ended(desk, run_id)) == (run_id, False)
        refusing = False
        await eventually("it is settled", lambda: has_ended(desk, run_id))

        assert await desk.turn_of(run_id) is None


async def has_ended(desk: Desk, run_id: UUID) -> bool:
    return (await desk.run(run_id))["finished_at"] is not None


@pytest.mark.rule("CM-76")
async def test_of_two_workers_that_claim_one_conversation_one_gets_one_turn(database_url: str) -> None:
    agent = an_agent("helper", runs=ends, conversation=True)
    async with a_desk(database_url, agent) as one, a_desk(database_url, agent) as two:
        runs = await one.admit("helper", *(an_event(chat="c", text=str(n)) for n in range(3)))

        claims = await asyncio.gather(
            *(desk.claims.claim(desk.session.id, []) for desk in (one, two, one, two))
        )

        taken = [turn for claim in claims for turn in claim.turns]
        assert [turn.own.run_id for turn in taken] == runs[:1]
        with pytest.raises(asyncpg.UniqueViolationError):
            await one.database.execute(
                "insert into turns (lane_id, run_id, epoch) values ($1, $2, 9)", taken[0].own.lane_id, runs[1]
            )


@pytest.mark.rule("CM-73")
async def test_fixed_fields_are_columns_and_what_is_frozen_is_bytes(database_url: str) -> None:
    async with a_desk(database_url) as desk:
        kinds = await desk.rows(
            "select table_name || '.' || column_name as name, data_type from information_schema.columns"
            " where table_schema = 'public' and table_name in ('turns', 'items', 'notes', 'conversations')"
        )
        keys = await desk.rows(
            "select conrelid::regclass::text as held from pg_constraint"
            " where contype = 'f' and confrelid = 'conversations'::regclass"
        )

    typed = {row["name"]: row["data_type"] for row in kinds}
    assert (typed["turns.snapshot"], typed["turns.snapshot_digest"]) == ("bytea", "bytea")
    assert not {kind for kind in typed.values() if kind.startswith("json")}
    assert {"items", "notes", "note_operations"} <= {row["held"] for row in keys}


@pytest.mark.rule("CM-9", "CM-41")
async def test_a_conversation_begins_with_nothing_whatever_the_rest_of_the_database_holds(
    database_url: str,
) -> None:
    pasts: list[Snapshot | None] = []

    async def looks(turn: Turn) -> None:
        pasts.append(turn.snapshot)
        if turn.has_conversation:
            await turn.set_note("city", "Kyoto")
        await turn.step("state", lambda: {"city": "Kyoto"})
        await turn.reply("Kyoto it is")

    helper = an_agent("helper", runs=looks, conversation=True)
    unbound = an_agent("unbound", runs=looks)
    async with (
        a_desk(database_url, helper, unbound) as desk,
        delivery.a_desk(database_url, LabChannel()) as out,
    ):
        await desk.admit("helper", an_event(chat="another", text="I live in Kyoto"))
        await desk.admit("unbound", an_event(chat="c", text="I live in Kyoto"))
        await desk.work()
        await out.send()
        await desk.admit("helper", an_event(chat="c", text="where do I live?"))
        await desk.work()
        extensions = await desk.rows("select extname from pg_extension")
        columns = await desk.rows(
            "select distinct udt_name from information_schema.columns where table_schema = 'public'"
        )

    assert pasts[-1] == Snapshot(), "nothing is taken from elsewhere, and nothing is filled in later"
    assert [row["extname"] for row in extensions] == ["plpgsql"]
    assert not {row["udt_name"] for row in columns} & {"vector", "tsvector", "_float4", "_float8"}


@pytest.mark.rule("CM-9", "CM-41")
def test_the_memory_room_reaches_nothing_but_its_database_and_calls_no_model() -> None:
    allowed = {"schemas", "workers", *sys.stdlib_module_names}
    room = Path(str(importlib.util.find_spec("workers.memory").submodule_search_locations[0]))  # type: ignore[union-attr,index]  # it is a package
    used: set[str] = set()
    for file in room.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                used |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module)

    assert {name.split(".")[0] for name in used} - allowed <= {"asyncpg", "structlog"}
    rooms = {".".join(name.split(".")[:2]) for name in used if name.startswith("workers.")}
    assert rooms <= {"workers.memory", "workers.postgres", "workers.telemetry"}
