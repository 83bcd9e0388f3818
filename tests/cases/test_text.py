"""Faults of text that an agent makes or a tool returns: what no store holds poisons a conversation for good."""

import json
from typing import Any

import pytest
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from schemas import jsonio
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from workers.agents.tools import reply_tools
from workers.agents.turn import Turn

NUL, LONE, SHOWN = "\x00", "\ud800", "\ufffd"
LITERAL = r"a\u0000b"


async def stored(desk: Desk) -> str:
    """All that the database keeps of runs, as text."""
    found: list[str] = []
    for statement in (
        "select result, args_digest from run_steps",
        "select body from items",
        "select body from deliveries",
        "select body from notes",
        "select event from runs",
    ):
        for row in await desk.rows(statement):
            found += [
                v.decode() if isinstance(v, bytes) else str(v) for k, v in row.items() if k != "args_digest"
            ]
    return "\n".join(found)


async def all_sent(desk: Desk) -> None:
    """Let the channel have taken what was journalled, so that the next turn may recall it."""
    await desk.database.execute("update deliveries set state = 'sent', finished_at = parley_now()")
    await desk.database.execute("update items set status = 'sent' where status = 'pending'")
    await desk.database.execute("update runs set due_at = parley_now() where finished_at is null")
    await desk.database.execute("update ready set due_at = parley_now()")


@pytest.mark.parametrize("bad", [NUL, LONE], ids=["nul", "lone surrogate"])
async def test_pb_29_30_what_an_agent_makes_of_bad_text_is_stored_and_recalled_as_the_replacement(
    database_url: str, bad: str
) -> None:
    """langchain-ai/langgraph issue 1878, opencode pull 17758: the write raised after the run had ended, or what was
    stored was refused at every later request."""
    seen: list[tuple[list[str], list[str]]] = []

    async def runs(turn: Turn) -> None:
        seen.append(([each.text for each in turn.history], [note.body for note in turn.notes]))
        if turn.event.text == "first":
            value = await turn.step(
                "tool", lambda *_: {f"k{bad}": [f"v{bad} ok", {f"n{bad}": LITERAL}]}, f"arg{bad}"
            )
            await turn.set_note("kept", f"note{bad}")
            await turn.reply(f"reply{bad}: {value[f'k{SHOWN}'][0]}")
        await turn.reply(LITERAL)

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        for text in ("first", "hi", "there"):
            await desk.admit("echo", an_event(chat="c7", text=text))
            await desk.work()
            await all_sent(desk)

        assert await desk.statuses() == {"succeeded": 3}
        assert len(seen) == 3
        told = seen[-1]
        text = await stored(desk)
        assert bad not in text
        json.dumps(seen, ensure_ascii=False).encode("utf-8", "strict")
        assert f"reply{SHOWN}: v{SHOWN} ok" in text
        assert told[1] == [f"note{SHOWN}"]
        assert LITERAL in told[0]
        assert await desk.replies() == [f"reply{SHOWN}: v{SHOWN} ok", LITERAL, LITERAL, LITERAL]


@pytest.mark.parametrize("bad", [NUL, LONE], ids=["nul", "lone surrogate"])
async def test_pb_29_30_a_models_tool_call_and_its_result_may_hold_bad_text(
    database_url: str, bad: str
) -> None:
    """anomalyco/opencode issues 14630 and 13988, aegra/aegra issue 369: one tool result, and the session was lost."""
    contexts: list[bytes] = []
    said = bad.replace(LONE, SHOWN)  # a call whose JSON has a lone surrogate is refused before any tool runs

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        contexts.append(repr(messages).encode("utf-8", "strict"))
        match sum(isinstance(message, ModelResponse) for message in messages):
            case 0:
                return ModelResponse([ToolCallPart("look", json.dumps({"where": f"here{said}"}))])
            case 1:
                return ModelResponse([ToolCallPart("reply", json.dumps({"text": f"found{said}"}))])
        return ModelResponse([TextPart("done")])

    runs = ModelAgent(FunctionModel(answer), deps_type=Turn, toolsets=[reply_tools()])

    @runs.tool_plain
    async def look(where: str) -> dict[str, Any]:
        return {f"key{bad}": f"{bad} ok", "where": where}

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        for text in ("first", "hi"):
            await desk.admit("echo", an_event(chat="c7", text=text))
            await desk.work()
            await all_sent(desk)

        assert await desk.statuses() == {"succeeded": 2}
        assert (await desk.replies())[0] == f"found{SHOWN}"
        assert bad not in await stored(desk)
        assert contexts


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")], ids=str)
async def test_pb_32_a_result_that_is_no_json_number_is_stored_as_strict_json(
    database_url: str, number: float
) -> None:
    """apify-client-python pull 87, django-rest-framework issue 5235: what one encoder wrote other parsers refused."""
    given: list[Any] = []

    async def runs(turn: Turn) -> None:
        given.append(await turn.step("measure", lambda: {"p95": number, "deep": [number]}))
        await turn.reply("measured")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event(text="measure"))
        await desk.work()

        assert await desk.statuses() == {"succeeded": 1}
        assert await desk.replies() == ["measured"]
        for row in await desk.rows("select result from run_steps where result is not null"):
            jsonio.loads(row["result"])
            json.loads(row["result"], parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert given == [json.loads(json.dumps(given[0], allow_nan=False))]
