"""Two messages, two processes, one database: the second process answers from what the first one kept.

`python -m examples.two_messages` starts a throw-away Postgres and broker, plays both, prints what was said and what the
model was shown, and exits with 0 only if the memory held. The model follows a script, so no key is needed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel

from schemas.event import Event
from schemas.identity import Principal
from workers.agents.agent import Agent, Subscription
from workers.agents.context import LABEL
from workers.agents.scripted import scripted_helper
from workers.app import Access, Allow, App, Conversations, Deny, Limits
from workers.channels.lab import LabChannel
from workers.embedded.settings import embedded_settings
from workers.kafka.settings import KafkaSettings
from workers.roles.running import running
from workers.roles.settings import Settings
from workers.telemetry.logging import configure

FIRST: Final = "Please remember that I prefer short answers."
SECOND: Final = "What answer style do I prefer?"
ANSWER: Final = 'You told me: "I prefer short answers"'
CONFIRMED: Final = "I will remember that I prefer short answers."
CHAT: Final = "example-chat"


class Overheard(WrapperModel):
    """The model, with an ear on what it is shown."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.shown: list[ModelMessage] = []

    async def request(self, messages: list[ModelMessage], *others: Any, **named: Any) -> ModelResponse:
        self.shown = self.shown or list(messages)
        return await super().request(messages, *others, **named)

    def lines(self) -> Iterator[str]:
        """What it was shown before it first answered, a line each."""
        for message in self.shown:
            if isinstance(message, ModelRequest):
                said = [part.content for part in message.parts if isinstance(part, UserPromptPart)]
                yield from (f"user: {text}" for text in said if isinstance(text, str))
            else:
                yield from (
                    f"assistant: {part.content}" for part in message.parts if isinstance(part, TextPart)
                )


async def authorize(access: Access) -> Allow | Deny:
    """Ada may use her own chat, and nobody else may."""
    mine = access.identity.account == "main" and access.identity.audience == "direct"
    return Allow() if mine and access.principal.id == "ada" else Deny("not their chat")


def an_app(chat: LabChannel, model: Overheard | None = None) -> App:
    """The same app in both processes."""
    runs = scripted_helper()
    if model is not None:
        runs.model = model
    helper = Agent(
        "helper",
        runs=runs,
        conversation="helper",  # keep this key when renaming the agent
        subscriptions=[Subscription(chat.name)],
    )
    return App(
        "two messages",
        agents=[helper],
        channels=[chat],
        conversations=Conversations(authorize=authorize, limits=Limits(max_items=20)),
    )


def message(chat: LabChannel, event_id: str, text: str, place: str) -> Event:
    """What the channel's adapter makes of an authenticated message."""
    return Event(
        event_id=event_id,
        channel=chat.name,
        account="main",
        chat=place,
        audience="direct",
        kind="message",
        principal=Principal("ada"),
        text=text,
        occurred_at=datetime.now(UTC),
    )


async def say(settings: Settings, event_id: str, text: str, place: str) -> tuple[list[str], list[str]]:
    """Start the app, bring one message in, wait for the answer, stop the app: replies, and what the model was shown."""
    chat = LabChannel("chat", size_limit=400)
    script = scripted_helper().model
    assert isinstance(script, Model)
    model = Overheard(script)
    print(f"user:      {text}")
    async with running(an_app(chat, model), settings) as engine:
        await engine.channel(chat).dispatch_conversation("helper", message(chat, event_id, text, place))
        await engine.idle()
    for reply in chat.received:
        print(f"helper:    {reply}")
    return chat.received, list(model.lines())


async def first_message(settings: Settings) -> bool:
    """Played by the first process."""
    replies, _ = await say(settings, "example-event-1", FIRST, CHAT)
    return replies == [CONFIRMED]


async def second_message(settings: Settings, place: str) -> bool:
    """Played by the second process: what it was shown can come from the database only."""
    replies, shown = await say(settings, "example-event-2", SECOND, place)
    for line in shown:
        print("  shown:   " + line.replace("\n", "\n           "))
    checks = {
        "the note that was saved is shown": any(
            line.startswith(f"user: {LABEL}") and "I prefer short answers" in line for line in shown
        ),
        "the accepted message is recalled": f"user: {FIRST}" in shown,
        "the confirmed reply is recalled": f"assistant: {CONFIRMED}" in shown,
        "the current message comes last": shown[-1:] == [f"user: {SECOND}"],
        "it answers from memory": replies == [ANSWER],
    }
    for what, holds in checks.items():
        print(f"  {'holds' if holds else 'FAILED'}:   {what}")
    return all(checks.values())


async def play(second_place: str = CHAT) -> bool:
    """Both messages, each by a process of its own."""
    with tempfile.TemporaryDirectory(prefix="two-messages-") as folder:
        async with embedded_settings(Path(folder) / "data") as settings:
            for part in ("first", "second"):
                print(f"--- the {part} process", flush=True)
                child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "examples.two_messages",
                    part,
                    settings.database_url,
                    settings.kafka.bootstrap,
                    second_place,
                    cwd=Path(__file__).parents[1],
                )
                if await child.wait() != 0:
                    print(f"the {part} process: it does not hold")
                    return False
    print("it holds")
    return True


def part_of(arguments: list[str]) -> bool:
    """One message in this process."""
    part, database_url, bootstrap, second_place = arguments
    kafka = replace(KafkaSettings.embedded(bootstrap), group_prefix=f"two-messages-{part}")
    settings = Settings(database_url, kafka, roles=frozenset({"turns", "delivery"}), http_port=0)
    work = first_message(settings) if part == "first" else second_message(settings, second_place)
    return asyncio.run(work)


def main(arguments: list[str]) -> int:
    """With `--elsewhere` the second message comes from another chat, and nothing holds."""
    configure("ERROR", json=False)
    logging.disable(logging.WARNING)
    if arguments and arguments[0] in ("first", "second"):
        return 0 if part_of(arguments) else 1
    return 0 if asyncio.run(play("another-chat" if "--elsewhere" in arguments else CHAT)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
