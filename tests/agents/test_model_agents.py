"""A pydantic-ai agent under the journal: every answer and every tool call happens once, or says that it is unknown."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import BinaryContent, ModelResponse, TextPart, ToolReturn
from pydantic_ai.usage import RequestUsage

from tests.agents.doubles import (
    Crashed,
    JournalDouble,
    StrictModel,
    a_turn,
    an_event,
    calls,
    run_to_the_end,
    system_texts,
    tool_results,
    user_texts,
)
from workers.agents.agent import Agent
from workers.agents.errors import LimitExceeded, LostOwnership, ReplayDiverged, Retryable, classify
from workers.agents.journal import MAX_REPLY_BYTES
from workers.agents.meter import RunLimits
from workers.agents.pydantic_runner import INTERRUPTED
from workers.agents.runner import run_agent
from workers.agents.tools import memory_tools, reply_tools
from workers.agents.turn import Turn
from workers.channels.splitting import MAX_CHUNKS
from workers.memory.snapshot import Exchange, Snapshot


def replier(model: StrictModel, **options: Any) -> ModelAgent[Turn, str]:
    return ModelAgent(model.model, deps_type=Turn, toolsets=[reply_tools()], **options)


@pytest.mark.rule("EN-22", "EN-30")
@pytest.mark.parametrize("crash_after", range(1, 4))
async def test_a_reply_tool_commits_with_its_reply_and_is_sent_once(crash_after: int) -> None:
    model = StrictModel(calls(("reply", {"text": "hello"})), ModelResponse([TextPart("done")]))
    agent = Agent("helper", runs=replier(model))
    journal = JournalDouble()
    journal.crash_after = crash_after
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    resumed = journal.revived()
    await run_agent(agent, a_turn(agent, resumed))

    assert resumed.sent == ["hello"]
    assert model.calls == 2
    assert journal.log + resumed.log == [
        ((0, 0), "model", "finished"),
        ((0, 1), "tool", "finished"),
        ((1, 0), "model", "finished"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("z" * (MAX_REPLY_BYTES + 1), f"{MAX_REPLY_BYTES + 1} bytes"),
        ("z" * (MAX_CHUNKS + 1), f"at most {MAX_CHUNKS} messages"),
    ],
)
async def test_the_model_is_told_why_its_reply_is_too_long_and_may_send_a_shorter_one(
    text: str, why: str
) -> None:
    model = StrictModel(calls(("reply", {"text": text})), calls(("reply", {"text": "hello"})))
    agent = Agent("helper", runs=replier(model))
    journal = await run_to_the_end(agent, split=lambda channel, text: tuple(text))
    resumed = journal.revived()
    await run_agent(agent, a_turn(agent, resumed))

    told = tool_results(model.seen[1])[-1]
    assert told.outcome == "failed"
    assert why in str(told.content)
    assert "nothing was sent" in str(told.content)
    assert resumed.sent == ["hello"]
    assert resumed.writes == []


@pytest.mark.rule("EN-22")
async def test_a_tool_in_flight_is_not_repeated_and_the_model_is_told() -> None:
    charged: list[int] = []
    model = StrictModel(calls(("charge", {"amount": 5})))
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool_plain
    async def charge(amount: int) -> str:
        charged.append(amount)
        return "charged"

    agent = Agent("cashier", runs=runs)
    journal = JournalDouble()
    journal.crash_before = 3
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    assert [record.state for record in journal.recorded.values()] == ["finished", "started"]
    resumed = journal.revived()
    await run_agent(agent, a_turn(agent, resumed))

    assert charged == [5]
    [result] = tool_results(model.seen[-1])
    assert (result.content, result.outcome) == (INTERRUPTED, "failed")
    assert resumed.recorded[0, 1].state == "finished"


@pytest.mark.rule("EN-22")
async def test_a_repeatable_tool_in_flight_runs_again() -> None:
    looked_up: list[str] = []
    model = StrictModel(calls(("look_up", {"word": "x"})))
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool_plain(metadata={"repeatable": True})
    async def look_up(word: str) -> str:
        looked_up.append(word)
        return "found"

    agent = Agent("reader", runs=runs)
    journal = JournalDouble()
    journal.crash_before = 2
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    await run_agent(agent, a_turn(agent, journal.revived()))

    assert looked_up == ["x", "x"]
    assert [result.content for result in tool_results(model.seen[-1])] == ["found"]


async def test_a_batch_that_is_killed_after_two_of_three_calls_repeats_none_of_them() -> None:
    charged: list[int] = []
    model = StrictModel(calls(*(("charge", {"call": number}) for number in range(3))))
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool_plain(sequential=True)
    async def charge(call: int) -> str:
        charged.append(call)
        return f"charged {call}"

    agent = Agent("cashier", runs=runs)
    journal = JournalDouble()
    journal.crash_before = 7
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    await run_agent(agent, a_turn(agent, journal.revived()))

    assert charged == [0, 1, 2]
    assert [result.content for result in tool_results(model.seen[-1])] == [
        "charged 0",
        "charged 1",
        INTERRUPTED,
    ]


async def test_eight_tools_side_by_side_are_recorded_once_each_under_their_own_number() -> None:
    async def one_turn() -> JournalDouble:
        model = StrictModel(calls(*(("work", {"number": number}) for number in range(8))))
        runs = ModelAgent(model.model, deps_type=Turn)

        @runs.tool_plain
        async def work(number: int) -> int:
            for _ in range((number * 5) % 8):
                await asyncio.sleep(0)
            return number

        journal = await run_to_the_end(Agent("team", runs=runs))
        assert [result.content for result in tool_results(model.seen[-1])] == list(range(8))
        return journal

    for _ in range(20):
        journal = await one_turn()
        finished = [at for at, kind, state in journal.log if kind == "tool" and state == "finished"]
        assert sorted(finished) == [(0, number) for number in range(1, 9)]
        assert [journal.recorded[0, number].result for number in range(1, 9)] == [
            f'{{"return":{number}}}'.encode() for number in range(8)
        ]


@pytest.mark.rule("EN-4", "EN-22")
async def test_what_tools_say_to_the_model_is_the_same_when_replayed() -> None:
    model = StrictModel(calls(("picky", {"n": 1}), ("picture", {}), ("wrapped", {})))
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool_plain
    async def picky(n: int) -> str:
        raise ModelRetry("n must be 2")

    @runs.tool_plain
    async def picture() -> BinaryContent:
        return BinaryContent(b"\x89PNG", media_type="image/png")

    @runs.tool_plain
    async def wrapped() -> ToolReturn[Any]:
        return ToolReturn({"p95": float("inf"), "text\x00": "\ud800 ok"}, content="look", metadata={"k": 1})

    agent = Agent("helper", runs=runs)
    journal = JournalDouble()
    journal.crash_before = 8
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    await run_agent(agent, a_turn(agent, journal.revived()))

    _, live, replayed = model.seen
    for messages in (live, replayed):
        picky_said, picture_said, wrapped_said = tool_results(messages)
        assert (picky_said.content, picky_said.outcome) == ("n must be 2", "retried")
        assert isinstance(picture_said.content, BinaryContent)
        assert wrapped_said.content == {"p95": None, "text\ufffd": "\ufffd ok"}
        assert wrapped_said.metadata == {"k": 1}
        assert user_texts(messages) == ["hello", "look"]


async def test_replies_of_a_users_own_tool_are_numbered_below_it() -> None:
    model = StrictModel(calls(("tell", {}), ("tell", {})))
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool(metadata={"repeatable": True})
    async def tell(ctx: RunContext[Turn]) -> str:
        await ctx.deps.reply(f"working, {ctx.tool_call_id}")
        await ctx.deps.reply(f"finished, {ctx.tool_call_id}")
        return "told"

    journal = await run_to_the_end(Agent("teller", runs=runs))

    assert sorted(journal.emits) == [(0, 1001), (0, 1002), (0, 2001), (0, 2002)]
    assert sorted(at for at, kind, _ in journal.log if kind == "tool") == [(0, 1), (0, 2)]


@pytest.mark.rule("EN-22")
async def test_changed_tool_arguments_stop_the_run_before_any_tool_runs() -> None:
    ran: list[str] = []

    def build(model: StrictModel, default: str, **options: Any) -> Agent:
        runs = ModelAgent(model.model, deps_type=Turn)

        async def act(what: str, how: str = default) -> str:
            ran.append(how)
            return how

        runs.tool_plain(act)
        return Agent("actor", runs=runs, **options)

    model = StrictModel(calls(("act", {"what": "x"})))
    journal = JournalDouble()
    journal.crash_after = 3
    first = build(model, "softly")
    with pytest.raises(Crashed):
        await run_agent(first, a_turn(first, journal))

    for changed in (build(model, "loudly"), build(model, "softly", version="2")):
        with pytest.raises(ReplayDiverged):
            await run_agent(changed, a_turn(changed, journal.revived()))
    going_on = build(model, "loudly", version="2", on_change="continue")
    await run_agent(going_on, a_turn(going_on, journal.revived()))

    assert ran == ["softly"]
    assert [result.content for result in tool_results(model.seen[-1])] == ["softly"]


@pytest.mark.rule("EN-29")
async def test_usage_is_counted_by_model_and_limited_over_crashes() -> None:
    def answer() -> ModelResponse:
        response = calls(("reply", {"text": "x"}))
        response.usage = RequestUsage(input_tokens=60, output_tokens=10)
        return response

    model = StrictModel(answer(), answer(), answer())
    agent = Agent("talker", runs=replier(model), limits=RunLimits(tokens=150))
    journal = JournalDouble()
    journal.crash_after = 2
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    turn = a_turn(agent, journal.revived())
    with pytest.raises(LimitExceeded) as exceeded:
        await run_agent(agent, turn)

    assert exceeded.value.kind == "tokens"
    assert (turn.meter.models["strict"].requests, turn.meter.tokens, turn.meter.replies) == (3, 210, 2)


@pytest.mark.rule("EN-29")
async def test_model_responses_count_as_steps() -> None:
    model = StrictModel(*(calls(("reply", {"text": "again"})) for _ in range(5)))
    agent = Agent("looper", runs=replier(model), limits=RunLimits(steps=3))

    with pytest.raises(LimitExceeded):
        await run_to_the_end(agent)
    assert model.calls == 3


@pytest.mark.rule("CM-31")
async def test_final_text_alone_is_not_sent_and_is_noticed() -> None:
    model = StrictModel(ModelResponse([TextPart("an answer nobody gets")]))
    agent = Agent("mute", runs=replier(model), conversation=True)
    journal = JournalDouble()
    turn = a_turn(agent, journal, snapshot=Snapshot())
    await run_agent(agent, turn)

    assert journal.sent == []
    assert turn.meter.ended_unsent


def telling(model: StrictModel, address: str | None) -> Agent:
    """An agent whose own tool sends something, to `address` or as a reply, and which then ends with a text."""
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool
    async def tell(ctx: RunContext[Turn]) -> str:
        if address is None:
            await ctx.deps.reply("told")
        else:
            await ctx.deps.emit("web", address, "told")
        return "done"

    return Agent("teller", runs=runs, conversation=True)


@pytest.mark.rule("CM-31")
@pytest.mark.parametrize(("address", "noticed"), [(None, False), ("approvals", True)])
async def test_a_message_to_another_place_is_no_answer(address: str | None, noticed: bool) -> None:
    agent = telling(StrictModel(calls(("tell", {})), ModelResponse([TextPart("done")])), address)
    turn = a_turn(agent, JournalDouble(), snapshot=Snapshot())
    await run_agent(agent, turn)

    assert turn.meter.ended_unsent is noticed


@pytest.mark.rule("CM-31")
@pytest.mark.parametrize("crash_after", range(1, 5))
async def test_an_answer_before_a_crash_is_an_answer(crash_after: int) -> None:
    model = StrictModel(
        calls(("tell", {})), ModelResponse([TextPart("done")]), ModelResponse([TextPart("done")])
    )
    agent, journal = telling(model, None), JournalDouble()
    journal.crash_after = crash_after
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal, snapshot=Snapshot()))
    turn = a_turn(agent, journal.revived(), snapshot=Snapshot())
    await run_agent(agent, turn)

    assert turn.meter.ended_unsent is (crash_after == 2)


@pytest.mark.rule("EN-23")
async def test_a_provider_error_is_classified_and_a_journalled_call_is_not_made_again() -> None:
    def overloaded(_: Any) -> ModelResponse:
        raise ModelHTTPError(503, "strict", "secret words")

    model = StrictModel(calls(("reply", {"text": "first"})), overloaded)
    agent = Agent("helper", runs=replier(model))
    journal = JournalDouble()
    with pytest.raises(ModelHTTPError) as failed:
        await run_agent(agent, a_turn(agent, journal))
    await run_agent(agent, a_turn(agent, resumed := journal.revived()))

    assert classify(failed.value) == Retryable("model_http_503")
    assert resumed.sent == ["first"]
    assert model.calls == 3


@pytest.mark.rule("CM-40", "CM-26")
async def test_notes_come_first_as_quoted_user_data_and_the_current_input_last() -> None:
    model = StrictModel()
    runs = ModelAgent(model.model, deps_type=Turn, instructions="be kind", system_prompt="you are a helper")
    agent = Agent("helper", runs=runs, conversation=True)
    snapshot = Snapshot(
        history=(Exchange("assistant", "old answer"), Exchange("user", "second")), omitted_items=4
    )
    event = an_event("now", attachments=[{"id": "a", "name": "plan.pdf", "media_type": "application/pdf"}])
    await run_to_the_end(agent, snapshot=snapshot, event=event)

    [messages] = model.seen
    texts = user_texts(messages)
    assert texts[0] == "(Not shown: 4 earlier messages.)"
    assert texts[-1] == 'now\n[attachment "plan.pdf", application/pdf]'
    assert texts[-2] == "second"
    assert "you are a helper" in system_texts(messages)
    assert "be kind" in system_texts(messages)


async def test_an_assistant_that_spoke_first_and_two_users_in_a_row_make_a_history_a_strict_provider_takes() -> (
    None
):
    model = StrictModel()
    agent = Agent("helper", runs=replier(model), conversation=True)
    history = (
        Exchange("assistant", "a"),
        Exchange("assistant", "b"),
        Exchange("user", "c"),
        Exchange("user", "d"),
    )
    await run_to_the_end(agent, snapshot=Snapshot(history=history))

    assert model.calls == 1


@pytest.mark.rule("CM-5", "CM-7")
async def test_memory_tools_are_hidden_without_a_conversation_and_say_why_when_called() -> None:
    model = StrictModel(calls(("memory_set", {"key": "k", "text": "v"})))
    runs = ModelAgent(model.model, deps_type=Turn, toolsets=[memory_tools(), reply_tools()])
    await run_to_the_end(Agent("helper", runs=runs))

    assert model.tools_offered[0] == {"reply"}
    [result] = tool_results(model.seen[-1])
    assert "no conversation memory" in str(result.content)
    assert result.outcome == "failed"


@pytest.mark.rule("CM-5")
async def test_memory_tools_are_offered_in_a_bound_run_of_an_agent_that_has_them() -> None:
    model = StrictModel()
    runs = ModelAgent(model.model, deps_type=Turn, toolsets=[memory_tools(), reply_tools()])
    await run_to_the_end(Agent("helper", runs=runs, conversation=True), snapshot=Snapshot())

    assert model.tools_offered == [{"reply", "memory_list", "memory_get", "memory_set", "memory_remove"}]


async def test_a_tool_that_swallows_lost_ownership_cannot_hide_it() -> None:
    model = StrictModel(calls(("tell", {})))
    runs = ModelAgent(model.model, deps_type=Turn)

    @runs.tool
    async def tell(ctx: RunContext[Turn]) -> str:
        try:
            await ctx.deps.reply("x")
        except Exception:
            return "never mind"
        return "told"

    journal = JournalDouble()
    journal.lost_at = 3
    agent = Agent("teller", runs=runs)
    with pytest.raises(LostOwnership):
        await run_agent(agent, a_turn(agent, journal))
    assert journal.sent == []
