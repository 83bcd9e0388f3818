"""Faults of an agent's context: histories that no provider takes, tools run twice, a past that changes under a run."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart

from tests.agents.doubles import StrictModel, calls, tool_results, user_texts
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.agents.agent import Agent
from workers.agents.pydantic_runner import INTERRUPTED
from workers.agents.tools import reply_tools
from workers.agents.turn import Turn

LEASE = timedelta(seconds=2)
BATCH = 3


class Till:
    """A tool that charges at once, in calls below `stands_at`, and stands still at that one."""

    def __init__(self, *, stands_at: int) -> None:
        self.charged: list[int] = []
        self.stands = asyncio.Event()
        self._stands_at = stands_at

    def agent(self, model: StrictModel, *, sequential: bool) -> Agent:
        runs = ModelAgent(model.model, deps_type=Turn, toolsets=[reply_tools()])

        @runs.tool_plain(sequential=sequential)
        async def charge(call: int) -> str:
            self.charged.append(call)
            if call == self._stands_at:
                self.stands.set()
                await asyncio.Event().wait()
            return f"charged {call}"

        return an_agent("cashier", runs=runs, conversation=True)


def batch() -> ModelResponse:
    return calls(*(("charge", {"call": number}) for number in range(BATCH)))


async def released(desk: Desk) -> bool:
    return (await desk.recovery.run_once()).released == 1


async def die_and_recover(url: str, till: Till, *, sequential: bool) -> list[list[ModelMessage]]:
    """A lease runs out while the till stands; another worker ends the run, and then a second one."""
    dying, surviving = StrictModel(batch()), StrictModel()
    async with (
        a_desk(url, till.agent(dying, sequential=sequential), lease_for=LEASE) as one,
        a_desk(url, till.agent(surviving, sequential=sequential), lease_for=LEASE) as two,
    ):
        [run_id] = await one.admit("cashier", an_event(chat="c", text="charge three"))
        await one.loop.run_once()
        await eventually("the till stands", till.stands.is_set)
        finished = "select count(*) from run_steps where kind = 'tool' and state = 'finished'"
        await eventually("the others are recorded", lambda: all_but_one(one, finished))
        await one.lapse()
        await eventually("it is taken over", lambda: released(two))
        await two.work()
        [following] = await two.admit("cashier", an_event(chat="c", text="continue"))
        await two.work()
        assert [await two.status(run) for run in (run_id, following)] == ["succeeded", "succeeded"]
    return surviving.seen


async def all_but_one(desk: Desk, finished: str) -> bool:
    return bool(await desk.value(finished) == BATCH - 1)


async def test_pb_33_a_call_without_its_result_is_closed_and_the_next_turn_is_taken(
    database_url: str,
) -> None:
    """letta-ai/letta issue 3308, pydantic/pydantic-ai issue 4728: orphaned calls failed every later turn."""
    till = Till(stands_at=1)

    resumed, following = await die_and_recover(database_url, till, sequential=False)

    assert [result.content for result in tool_results(resumed)] == ["charged 0", INTERRUPTED, "charged 2"]
    assert [result.outcome for result in tool_results(resumed)] == ["success", "failed", "success"]
    assert tool_results(following) == []
    assert user_texts(following) == ["charge three", "continue"]


async def test_pb_34_a_resumed_batch_runs_no_call_again_and_names_the_unknown_one(database_url: str) -> None:
    """EvoScientist issue 463, Moonshine pull 4, rancher-ai-agent pull 136: a resume ran the whole batch again."""
    till = Till(stands_at=2)

    resumed, _ = await die_and_recover(database_url, till, sequential=True)

    assert till.charged == [0, 1, 2]
    assert [result.content for result in tool_results(resumed)] == ["charged 0", "charged 1", INTERRUPTED]


async def test_pb_36_an_agent_that_changes_what_it_was_handed_changes_no_snapshot(database_url: str) -> None:
    """langchain-ai/langgraph issue 4168: a state that was changed while it was being saved."""
    seen: list[bytes] = []
    pasts: list[tuple[list[str], list[str]]] = []

    async def runs(turn: Turn) -> None:
        assert turn.snapshot is not None
        past = turn.snapshot
        pasts.append(([exchange.text for exchange in past.history], [note.key for note in past.notes]))
        seen.append(await digest_of(turn))
        taken: list[Any] = list(turn.history)
        taken.append("mine")
        for change in ("append", "clear"):
            with pytest.raises(AttributeError):
                getattr(turn.history, change)("mine")
        with pytest.raises(AttributeError):
            past.history = ()  # type: ignore[misc]  # what an agent may try
        await turn.set_note(f"note {len(pasts)}", "of this run")
        seen.append(await digest_of(turn))

    async def digest_of(turn: Turn) -> bytes:
        row = await desk.turn_of(turn.run_id)
        assert row is not None
        return bytes(row["snapshot_digest"])

    async with a_desk(database_url, an_agent("helper", runs=runs, conversation=True)) as desk:
        await desk.admit("helper", an_event(chat="c", text="one"), an_event(chat="c", text="two"))
        await desk.work()

    assert pasts == [([], []), (["one"], ["note 1"])]
    assert seen[0] == seen[1]
    assert seen[2] == seen[3] != seen[0]


async def test_pb_80_tools_that_end_together_keep_places_of_their_own_in_every_turn(
    database_url: str,
) -> None:
    """dbos-inc/dbos-transact-py issue 714: parallel tasks took one step, and the loser waited for ever."""
    turns, width = 40, 8
    model = StrictModel()
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool_plain
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        return number

    asked = calls(*(("work", {"number": number}) for number in range(width)))

    def answer(messages: list[ModelMessage]) -> ModelResponse:
        return ModelResponse([TextPart("done")]) if tool_results(messages) else asked

    async with a_desk(database_url, an_agent("team", runs=runs)) as desk:
        model.answers.extend([answer] * (2 * turns))
        await desk.admit("team", *(an_event(chat=f"c{n}", text="go") for n in range(turns)))
        async with asyncio.timeout(60):
            await desk.work()
        rows = await desk.rows(
            "select run_id, array_agg(call order by call) as calls from run_steps"
            " where kind = 'tool' and state = 'finished' group by run_id"
        )
        statuses = await desk.statuses()
        lost = await desk.value("select count(*) from runs where crashes > 0 or attempts > 0")

    assert statuses == {"succeeded": turns}
    assert lost == 0
    assert [row["calls"] for row in rows] == [[*range(1, width + 1)]] * turns
