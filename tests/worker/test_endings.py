"""How turns end in a whole worker: retried in place, failed with a reason and a word to the user, or out of limits."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from schemas.errors import Transient
from tests.support.clock import shift_clock
from tests.support.events import KEYS, an_event
from tests.support.running import Site, a_worker, counted
from tests.support.waiting import eventually
from workers.agents.agent import Agent, Subscription
from workers.agents.meter import RunLimits
from workers.agents.tools import reply_tools
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations

LONG_LEASE = timedelta(hours=10)
"""The database's clock is moved under it."""


async def allow(access: Access) -> Allow:
    return Allow()


def an_app(lab: LabChannel, *agents: Agent) -> App:
    return App("tested", agents=agents, channels=[lab], conversations=Conversations(authorize=allow))


def an_agent(name: str, runs: Any, **options: Any) -> Agent:
    return Agent(name, runs=runs, subscriptions=[Subscription("lab", name)], **options)


async def until_retry(site: Site, retries: int) -> timedelta:
    """Wait until the run was put back so often; how long it is to wait now."""

    async def put_back() -> Any:
        rows = await site.rows(
            "select due_at - parley_now() as wait from runs where retries = $1 and status = 'queued'", retries
        )
        return rows[0]["wait"] if rows else None

    wait: timedelta = await eventually(f"retry {retries} waits", put_back)
    return wait


@pytest.mark.rule("EN-23")
async def test_a_retryable_failure_backs_off_in_place_and_fails_after_five_retries(site: Site) -> None:
    lab, tried, histories = LabChannel(keys=KEYS), list[str](), list[list[str]]()

    async def runs(turn: Turn) -> None:
        if turn.event.text != "flaky":
            histories.append([each.text for each in turn.history])
            await turn.reply(turn.event.text)
            return
        tried.append(turn.effect_id)
        await turn.reply("one moment")
        raise Transient

    app = an_app(lab, an_agent("echo", runs, conversation=True, on_failure="Sorry."))
    async with a_worker(site, app, lease_for=LONG_LEASE):
        await site.publish(an_event(kind="echo", chat="c", text="flaky"))
        await until_retry(site, 1)
        await site.publish(
            an_event(kind="echo", chat="c", text="behind"), an_event(kind="echo", chat="d", text="beside")
        )
        await eventually("the other conversation goes on", lambda: "beside" in lab.received)

        waits = []
        for retry in range(1, 6):
            waits.append(await until_retry(site, retry))
            assert "behind" not in lab.received
            await shift_clock(site.database, waits[-1])
        await site.settled(3)

    assert [round(wait.total_seconds()) for wait in waits[1:]] == [2, 4, 8, 16]
    assert (len(tried), len(set(tried))) == (6, 1)
    [run] = await site.rows("select status, reason, retries, crashes, attempts from runs where retries > 0")
    assert run == {
        "status": "failed",
        "reason": "retries exhausted: Transient",
        "retries": 5,
        "crashes": 0,
        "attempts": 0,
    }
    assert [text for text in lab.received if text != "beside"] == ["one moment", "Sorry.", "behind"]
    assert histories[-1] == ["flaky", "one moment"]
    journalled = await site.rows("select recalled, state from deliveries where body = 'Sorry.'::bytea")
    assert journalled == [{"recalled": False, "state": "sent"}]


@pytest.mark.rule("EN-23")
async def test_crashes_and_retries_of_a_run_are_counted_apart(site: Site) -> None:
    async def until(condition: str) -> None:
        async def holds() -> Any:
            return await site.rows(f"select 1 from runs where {condition}")

        await eventually(condition, holds)

    doomed = site.start(app="tests.worker.apps:flaky", options={"dies_at_try": 2}, lease_seconds=36_000)
    await site.publish(an_event(text="flaky"))
    await until("retries = 1 and status = 'queued'")
    await doomed.died()
    await shift_clock(site.database, timedelta(hours=11))

    site.start(app="tests.worker.apps:flaky", options={}, lease_seconds=36_000)
    await until("crashes = 1")
    await until("retries = 2 and status = 'queued'")

    [run] = await site.rows("select retries, crashes, attempts from runs")
    assert run == {"retries": 2, "crashes": 1, "attempts": 1}


@pytest.mark.rule("EN-23", "EN-27")
async def test_a_permanent_failure_keeps_its_reason_and_what_was_said_before_it(site: Site) -> None:
    lab = LabChannel(keys=KEYS)

    async def runs(turn: Turn) -> None:
        await turn.reply("so far")
        raise KeyError("a secret of the user")

    app = an_app(lab, an_agent("echo", runs, conversation=True, on_failure="Sorry."), an_agent("mute", runs))
    async with a_worker(site, app):
        await site.publish(an_event(kind="echo"), an_event(kind="mute"))
        await site.settled(2)

    runs_now = await site.rows("select agent, status, reason, retries from runs order by agent")
    assert runs_now == [
        {"agent": agent, "status": "failed", "reason": "KeyError", "retries": 0} for agent in ("echo", "mute")
    ]
    assert sorted(lab.received) == ["Sorry.", "so far", "so far"]


def spending(tool: bool = True) -> ModelAgent[Turn, str]:
    """A model of 100 tokens a response that sends a reply each time, and never ends by itself."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        part = ToolCallPart("reply", {"text": f"reply {len(messages)}"}) if tool else TextPart("bye")
        return ModelResponse(
            [part], usage=RequestUsage(input_tokens=70, output_tokens=30), model_name="spender"
        )

    model = FunctionModel(answer, model_name="spender")
    return ModelAgent(model, deps_type=Turn, toolsets=[reply_tools()])


@pytest.mark.rule("EN-29")
async def test_a_run_ends_at_its_limits_and_its_use_is_counted_by_agent_and_model(site: Site) -> None:
    lab = LabChannel(keys=KEYS)

    async def stepping(turn: Turn) -> None:
        for number in range(40):
            await turn.step("count", int, number)

    agents = [
        an_agent("steps", stepping),
        an_agent("model_steps", spending(), limits=RunLimits(steps=3)),
        an_agent("tokens", spending(), limits=RunLimits(tokens=250)),
        an_agent("replies", spending(), limits=RunLimits(replies=2)),
    ]
    async with a_worker(site, an_app(lab, *agents)) as worker:
        await site.publish(*(an_event(kind=agent.name, chat=agent.name) for agent in agents))
        await site.settled(len(agents))
        metrics = worker.metrics.render().decode()

    runs = {row["agent"]: (row["status"], row["reason"]) for row in await site.rows("select * from runs")}
    assert runs == {
        "steps": ("failed", "limit_exceeded: steps"),
        "model_steps": ("failed", "limit_exceeded: steps"),
        "tokens": ("failed", "limit_exceeded: tokens"),
        "replies": ("failed", "limit_exceeded: replies"),
    }
    assert (
        await site.value(
            "select count(*) from run_steps s join runs r on r.id = s.run_id where agent = 'steps'"
        )
        == 25
    )
    sent = [message.address for message in lab.messages]
    assert {chat: sent.count(chat) for chat in set(sent)} == {"model_steps": 3, "tokens": 2, "replies": 2}
    for agent, responses in {"model_steps": 3, "tokens": 3, "replies": 3}.items():
        labels = {"agent": agent, "model": "spender"}
        assert counted(metrics, "parley_tokens_total", direction="input", **labels) == 70 * responses
        assert counted(metrics, "parley_tokens_total", direction="output", **labels) == 30 * responses


@pytest.mark.rule("EN-29", "EN-23")
async def test_a_retried_run_is_billed_once_for_what_it_replays(site: Site) -> None:
    lab, tries = LabChannel(keys=KEYS), list[int]()
    model = spending(tool=False)

    @model.output_validator
    async def unlucky(output: str) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise Transient
        return output

    async with a_worker(site, an_app(lab, an_agent("model", model))) as worker:
        await site.publish(an_event(kind="model"))
        await site.settled(1)
        metrics = worker.metrics.render().decode()

    assert len(tries) == 2
    assert counted(metrics, "parley_tokens_total", agent="model") == 100
    [usage] = await site.rows("select usage::text as usage from runs")
    assert '"requests": 1' in usage["usage"]


@pytest.mark.rule("EN-20")
async def test_an_agent_that_never_ends_is_stopped_at_its_timeout(site: Site) -> None:
    lab = LabChannel(keys=KEYS)
    stopped: list[str] = []

    async def runs(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("stopped")
            raise

    app = an_app(lab, an_agent("echo", runs, timeout=timedelta(seconds=0.5)))
    async with a_worker(site, app):
        await site.publish(an_event(kind="echo"))
        await site.settled(1)

    assert await site.rows("select status, reason, retries from runs") == [
        {"status": "failed", "reason": "turn timeout", "retries": 0}
    ]
    assert stopped == ["stopped"]
