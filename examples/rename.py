"""An agent is given a stable memory key and a new name, and keeps what it knows; another key knows nothing.

`python -m examples.rename` starts the same app five times over one throw-away Postgres, as five releases would, prints
what happened in each, and exits with 0 only if every step held.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from schemas.event import Event
from schemas.identity import Principal
from workers.admission.policy import Admitted
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import Access, Allow, App, Conversations
from workers.channels.lab import LabChannel
from workers.embedded.settings import embedded_settings
from workers.engine.engine import Engine
from workers.operations.runs import show_run
from workers.postgres.database import Database
from workers.roles.running import running
from workers.roles.settings import Role, Settings
from workers.telemetry.logging import configure

WORKING: Final[frozenset[Role]] = frozenset({"turns", "delivery"})
QUEUING: Final[frozenset[Role]] = frozenset({"delivery"})
"""Without the turns role events are admitted and their runs wait."""


async def recite(turn: Turn) -> None:
    """Keeps the first thing it is told as a note, and says how much it knows of the past."""
    if not turn.notes:
        await turn.set_note("first", turn.event.text)
    notes = ", ".join(note.body for note in turn.notes) or "no notes"
    await turn.reply(f"{turn.agent.name}: {len(turn.history)} lines before, {notes}")


@dataclass
class Story:
    """The releases of one app, one after the other, and what did not hold."""

    settings: Settings
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Who the policy was asked about: the agent's name, and its memory key."""
    releases: int = 0
    failed: list[str] = field(default_factory=list)

    async def authorize(self, access: Access) -> Allow:
        """A real policy looks at `access.agent` and the caller; the key alone grants nothing."""
        self.asked.append((access.agent, access.identity.agent))
        return Allow()

    def release(self, name: str, conversation: bool | str) -> tuple[App, LabChannel]:
        """The app with its one agent under this name and key."""
        chat = LabChannel("chat", size_limit=400)
        agent = Agent(name, runs=recite, conversation=conversation, subscriptions=[Subscription("chat")])
        app = App(
            "rename", agents=[agent], channels=[chat], conversations=Conversations(authorize=self.authorize)
        )
        print(f"--- agent {name!r}, conversation={conversation!r}")
        return app, chat

    async def say(self, name: str, conversation: bool | str, text: str) -> str:
        """Start a release, bring one message in, stop: what was answered."""
        app, chat = self.release(name, conversation)
        async with running(app, self.life(WORKING)) as engine:
            await self.bring_in(engine, chat, name, text)
            await engine.idle()
        answer = " | ".join(chat.received)
        print(f"user:      {text}\n{name + ':':<11}{answer.partition(': ')[2]}")
        return answer

    async def bring_in(self, engine: Engine, chat: LabChannel, agent: str, text: str) -> UUID:
        event = Event(
            event_id=f"event-{text}",
            channel="chat",
            account="main",
            chat="room",
            audience="direct",
            kind="message",
            principal=Principal("ada"),
            text=text,
            occurred_at=datetime.now(UTC),
        )
        outcome = await engine.channel(chat).dispatch_conversation(agent, event)
        assert isinstance(outcome, Admitted)
        return outcome.run_id

    def life(self, roles: frozenset[Role]) -> Settings:
        """Settings of one release; each joins groups of its own, since the embedded broker forgets members slowly."""
        self.releases += 1
        kafka = replace(self.settings.kafka, group_prefix=f"rename-{self.releases}")
        return replace(self.settings, kafka=kafka, roles=roles)

    def check(self, what: str, holds: bool) -> None:
        print(f"  {'holds' if holds else 'FAILED'}:   {what}")
        if not holds:
            self.failed.append(what)


async def play(settings: Settings) -> list[str]:
    """The whole story; what did not hold."""
    story = Story(settings)
    answer = await story.say("helper", True, "I like tea")
    story.check("the first release knows nothing", answer == "helper: 0 lines before, no notes")

    answer = await story.say("helper", "helper", "hello again")
    story.check(
        "its former name as the key finds what was kept", answer == "helper: 2 lines before, I like tea"
    )

    answer = await story.say("support", "helper", "and again")
    story.check("renamed, it knows the same", answer == "support: 4 lines before, I like tea")
    story.check("the policy hears the real name and the key", story.asked[-1] == ("support", "helper"))

    app, chat = story.release("support", "helper")
    async with running(app, story.life(QUEUING)) as engine:
        queued = await story.bring_in(engine, chat, "support", "left in the queue")
    print("user:      left in the queue (and no worker takes it)")

    answer = await story.say("support", "support", "who am I?")
    story.check("another key is another history", answer == "support: 0 lines before, no notes")
    database = await Database.open(settings.database_url, max_size=1)
    run = (await show_run(database, queued)).run
    await database.close()
    story.check(
        f"the queued run of the former key failed: {run.reason}",
        (run.status, run.reason) == ("failed", "memory key changed"),
    )
    return story.failed


async def run() -> bool:
    """Play it on services of its own."""
    with tempfile.TemporaryDirectory(prefix="rename-") as folder:
        async with embedded_settings(Path(folder) / "data") as settings:
            failed = await play(settings)
    print("it holds" if not failed else "it does not hold")
    return not failed


def main() -> int:
    configure("CRITICAL", json=False)
    logging.disable(logging.WARNING)
    return 0 if asyncio.run(run()) else 1


if __name__ == "__main__":
    sys.exit(main())
