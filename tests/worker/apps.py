"""The apps that worker processes run; each is made from its Life."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from schemas.errors import Transient
from tests.support.events import KEYS, a_key
from tests.support.waiting import eventually
from tests.support.worker_process import FatefulChannel, Life, ledger_of
from workers.agents.agent import Agent, Subscription
from workers.agents.tools import reply_tools
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.port import Capability, Outcome, Outgoing
from workers.channels.webhook import WebhookChannel
from workers.memory.access import Access, Allow, Deny
from workers.memory.limits import Conversations, Limits

LISTENS = [Subscription("lab")]


async def allow(access: Access) -> Allow:
    return Allow()


def lab(life: Life) -> FatefulChannel:
    return FatefulChannel(
        capability=Capability(life.capability),
        keys=KEYS,
        ledger=ledger_of(life),
        transport_timeout=timedelta(seconds=life.transport_timeout_seconds),
    )


def an_app(life: Life, *agents: Agent) -> App:
    return App("tested", agents=agents, channels=[lab(life)], conversations=Conversations(authorize=allow))


def echo(life: Life) -> App:
    """Two bound agents, `echo` and `again`, where the Life's options ask for it; else `echo` alone."""

    def answering(name: str) -> Agent:
        async def runs(turn: Turn) -> None:
            life.note(f"{name} ran {turn.event.event_id}")
            await turn.step("think", lambda: life.note(f"{name} thought about {turn.event.event_id}"))
            await turn.reply(f"{name}: {turn.event.text}")

        # Lives end here on purpose, again and again, and a run that is alone in several of them is no poison.
        return Agent(name, runs=runs, conversation=True, subscriptions=LISTENS, max_crash_attempts=100)

    return an_app(life, *(answering(name) for name in life.options.get("agents", ["echo"])))


def slow(life: Life) -> App:
    """A turn takes as many seconds as its text says after `slow`; any other is answered at once."""

    async def runs(turn: Turn) -> None:
        life.note(f"ran {turn.event.text}")
        word, _, seconds = turn.event.text.partition(" ")
        if word == "slow":
            await turn.step("wait", asyncio.sleep, float(seconds))
        await turn.reply(turn.event.text)

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))


def cashier(life: Life) -> App:
    """A pydantic-ai agent: `fetch`, then `charge` and the repeatable `peek` side by side, then a reply.

    In a life whose options say `dies`, the process is killed when both tools are in flight.
    """
    in_flight = 0

    async def both_in_flight() -> None:
        nonlocal in_flight
        in_flight += 1
        if life.options.get("dies"):
            if in_flight == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.Event().wait()

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = sum(isinstance(message, ModelResponse) for message in messages) + 1
        life.note(f"asked {asked}")
        match asked:
            case 1:
                return ModelResponse([ToolCallPart("fetch", {})])
            case 2:
                return ModelResponse([ToolCallPart("charge", {"cents": 5}), ToolCallPart("peek", {})])
            case 3:
                told = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
                words = "; ".join(f"{part.tool_name}={part.content}" for part in told)
                return ModelResponse([ToolCallPart("reply", {"text": words})])
        return ModelResponse([TextPart("done")])

    runs = ModelAgent(FunctionModel(answer), deps_type=Turn, toolsets=[reply_tools()])

    @runs.tool_plain
    async def fetch() -> str:
        life.note("fetched")
        return "order 7"

    @runs.tool_plain
    async def charge(cents: int) -> str:
        life.note(f"charged {cents}")
        await both_in_flight()
        return "charged"

    @runs.tool_plain(metadata={"repeatable": True})
    async def peek() -> str:
        life.note("peeked")
        await both_in_flight()
        return "seen"

    agent = Agent(
        "cashier",
        runs=runs,
        conversation=True,
        subscriptions=LISTENS,
        version=life.options.get("version", "1"),
        on_change=life.options.get("on_change", "fail"),
    )
    return an_app(life, agent)


def flaky(life: Life) -> App:
    """An agent that never succeeds and may be tried again; the process dies at the try that its options name."""

    async def runs(turn: Turn) -> None:
        life.note("tried")
        if len(life.noted()) == life.options.get("dies_at_try"):
            os.kill(os.getpid(), signal.SIGKILL)
        raise Transient

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))


def leaky(life: Life) -> App:
    """Whatever can fail fails once, each time with a secret in its message."""
    secret, url = life.options["secret"], life.options["url"]
    failed: set[str] = set()

    def fail_once(where: str) -> None:
        if where not in failed:
            failed.add(where)
            raise ConnectionError(f"{where}: token={secret} in {url}, bearer {secret}, for {secret}")

    class LeakyChannel(FatefulChannel):
        async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
            fail_once("channel")
            return await super().send(outgoing, timeout)

    async def authorize(access: Access) -> Allow | Deny:
        fail_once(f"authorize {access.purpose}")
        return Deny(secret) if access.event.text.endswith("denied") else Allow(secret)

    async def runs(turn: Turn) -> None:
        await turn.step("look", lambda: fail_once("step"))
        await turn.set_note(secret, secret)
        await turn.reply(turn.event.text)
        await turn.emit("hook", "a", secret)
        if turn.event.text.endswith("permanent"):
            raise ValueError(f"{secret} {turn.event.text}")

    lab = LeakyChannel(keys=KEYS, ledger=ledger_of(life))
    hook = WebhookChannel("hook", url, StaticKeys((a_key(secret),)))
    agent = Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS, on_failure=secret)
    return App(
        "tested", agents=[agent], channels=[lab, hook], conversations=Conversations(authorize=authorize)
    )


def patient(life: Life) -> App:
    """A turn begins, and goes on once a file named `go` lies in the folder."""

    async def runs(turn: Turn) -> None:
        life.note(f"{life.name} began {turn.event.text}")
        try:
            await eventually("it may go on", (Path(life.folder) / "go").exists)
            await turn.step("go on", lambda: life.note(f"{life.name} went on with {turn.event.text}"))
            await turn.reply(f"{life.name} says {turn.event.text}")
        except asyncio.CancelledError:
            life.note(f"{life.name} was stopped in {turn.event.text}")
            raise

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))


def remembering(life: Life) -> App:
    """Keeps what comes after `note`; any other turn tells what it was shown, and goes on once a file `go` is there."""

    async def runs(turn: Turn) -> None:
        word, _, rest = turn.event.text.partition(" ")
        if word == "note":
            await turn.set_note("city", rest)
            await turn.reply("noted")
            return
        await turn.set_note("asked", turn.event.text)
        said, saved = [each.text for each in turn.history], {note.key: note.body for note in turn.notes}
        life.note(f"{life.name} was shown {said} {saved}")
        await eventually("it may go on", (Path(life.folder) / "go").exists)
        await turn.reply("answered")

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))


def counting(life: Life) -> App:
    """Answers with what it recalls of the earlier messages, in order; the step before it takes a while."""

    async def runs(turn: Turn) -> None:
        await turn.step("take a while", asyncio.sleep, 0.05)
        seen = [each.text for each in turn.history if each.role == "user"]
        await turn.reply(f"{len(seen)}: {turn.event.text}")

    limits = Limits(max_items=100)
    agent = Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS)
    return App("tested", agents=[agent], channels=[lab(life)], conversations=Conversations(allow, limits))
