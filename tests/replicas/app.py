"""The app under test: two agents on three channels, and lines by which a checker sees who wrote when.

Workers load it as `tests.replicas.app:app`; REPLICAS_RECEIVER and REPLICAS_LINES say where to post and where to write.
An event's text is its id and for how many milliseconds the agent is to work.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import aiohttp

from tests.checker.evidence import answer_to
from tests.support.events import KEYS
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.port import Absent, Capability, Found, LookUp, Outgoing, Unsure
from workers.channels.webhook import WebhookChannel
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations

CHANNELS = {
    "hook": Capability.IDEMPOTENT,
    "asked": Capability.LOOK_UP_DEFINITE,
    "silent": Capability.NONE,
}
LISTENERS = {"message": ("keeper",), "command": ("plain",), "both": ("keeper", "plain")}
"""Which agents listen to the events of a kind."""
STUBBORN = "long"
"""In such chats an agent goes on although it was cancelled, as user code may: only the fence stops it."""
TRANSPORT_TIMEOUT = timedelta(seconds=4)

_turns = itertools.count(1)


class AskedChannel(WebhookChannel):
    """A webhook whose receiver can be asked what it accepted, and is believed."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name, url, KEYS, capability=Capability.NONE, transport_timeout=TRANSPORT_TIMEOUT)
        self.capability = Capability.LOOK_UP_DEFINITE  # type: ignore[assignment]  # see the override of `look_up`
        self._question = f"{url}/accepted"

    async def look_up(self, outgoing: Outgoing, timeout: timedelta) -> LookUp:
        limit = aiohttp.ClientTimeout(total=timeout.total_seconds())
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as http,
                http.get(self._question, params={"key": outgoing.key}) as answer,
            ):
                return Found() if answer.status == 204 else Absent()
        except (aiohttp.ClientError, TimeoutError) as error:
            return Unsure(type(error).__name__)


class Marks:
    """The lines of one turn; one write a line, so that a kill tears none."""

    def __init__(self, turn: Turn, path: Path) -> None:
        self._turn = turn
        self._path = path
        self._name = f"{os.getpid()}-{next(_turns)}"

    async def mark(self, word: str) -> None:
        """Commit a step of this name, then say so."""
        fresh = False

        def take() -> None:
            nonlocal fresh
            fresh = True

        before_ns = time.monotonic_ns()
        await self._turn.step(word, take)
        after_ns = time.monotonic_ns()
        line: dict[str, object] = {
            "turn": self._name,
            "run_id": str(self._turn.run_id),
            "word": word,
            "fresh": fresh,
            "before_ns": before_ns,
            "after_ns": after_ns,
        }
        if word == "begin":
            line["recalled"] = [[each.role, each.text] for each in self._turn.history]
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


async def allow(access: Access) -> Allow:
    return Allow()


def build(receiver: str, lines: Path) -> App:
    going_on: set[asyncio.Future[None]] = set()

    async def runs(turn: Turn) -> None:
        marks = Marks(turn, lines)
        await marks.mark("begin")
        rest: asyncio.Future[None] = asyncio.ensure_future(work_and_answer(turn, marks))
        if turn.event.chat.startswith(STUBBORN):
            going_on.add(rest)
            rest.add_done_callback(going_on.discard)
            rest = asyncio.shield(rest)
        await rest

    async def work_and_answer(turn: Turn, marks: Marks) -> None:
        _, work_ms = turn.event.text.split()
        await asyncio.sleep(int(work_ms) / 1000)
        await marks.mark("worked")
        await turn.reply(answer_to(turn.agent.name, turn.event.event_id))
        await marks.mark("end")

    def subscriptions(agent: str) -> list[Subscription]:
        return [
            Subscription(channel, kind)
            for channel in CHANNELS
            for kind, agents in LISTENERS.items()
            if agent in agents
        ]

    def webhook(name: str) -> WebhookChannel:
        return WebhookChannel(
            name,
            f"{receiver}/{name}",
            KEYS,
            capability=CHANNELS[name],
            transport_timeout=TRANSPORT_TIMEOUT,
        )

    return App(
        "replicas",
        agents=[
            Agent("keeper", runs=runs, conversation=True, subscriptions=subscriptions("keeper")),
            Agent(
                "plain",
                runs=runs,
                subscriptions=subscriptions("plain"),
                concurrency_key=lambda event: event.chat,
            ),
        ],
        channels=[webhook("hook"), AskedChannel("asked", f"{receiver}/asked"), webhook("silent")],
        conversations=Conversations(authorize=allow),
    )


app = build(
    os.environ.get("REPLICAS_RECEIVER", "http://127.0.0.1:9"),
    Path(os.environ.get("REPLICAS_LINES", os.devnull)),
)
