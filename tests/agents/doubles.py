"""A journal that can crash, events and turns to order, and a model provider that is strict about history."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from schemas import jsonio
from schemas.event import Event
from schemas.identity import Principal
from workers.admission.policy import Candidate
from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership
from workers.agents.journal import Emit, Position, StepRecord
from workers.agents.meter import Meter
from workers.agents.runner import run_agent
from workers.agents.turn import Turn
from workers.memory.notes import Notebook
from workers.memory.snapshot import Snapshot

RUN_ID = UUID("019ae000-0000-7000-8000-000000000001")


class Crashed(BaseException):
    """The process died here."""


class JournalDouble:
    """A TurnJournal in memory; dies before or after its write number `crash_at`, or has lost its lane by then."""

    def __init__(self) -> None:
        self.recorded: dict[Position, StepRecord] = {}
        self.emits: dict[Position, Emit] = {}
        self.log: list[tuple[Position, str, str]] = []
        self.writes: list[tuple[StepRecord, Emit | None]] = []
        self.crash_before: int | None = None
        self.crash_after: int | None = None
        self.lost_at: int | None = None

    async def write(
        self, record: StepRecord, emit: Emit | None = None, hand_off: Candidate | None = None
    ) -> None:
        number = len(self.writes) + 1
        if self.lost_at is not None and number >= self.lost_at:
            raise LostOwnership
        if number == self.crash_before:
            raise Crashed
        await asyncio.sleep(0)
        if record.result is not None:
            jsonio.loads(record.result)
        at = (record.step, record.call)
        self.writes.append((record, emit))
        self.log.append((at, record.kind, record.state))
        self.recorded[at] = record
        if emit is not None:
            self.emits.setdefault(at, emit)
        if number == self.crash_after:
            raise Crashed

    def revived(self) -> "JournalDouble":
        """The same journal in a new process: what was committed is recorded, nothing else is known."""
        journal = JournalDouble()
        journal.recorded = dict(self.recorded)
        journal.emits = dict(self.emits)
        return journal

    @property
    def sent(self) -> list[str]:
        """The text of every emit, in the order of positions."""
        return ["".join(self.emits[at].chunks) for at in sorted(self.emits)]


def an_event(text: str = "hello", **changed: Any) -> Event:
    """A message of a user on the channel `web`."""
    fields: dict[str, Any] = {
        "event_id": "e-1",
        "channel": "web",
        "account": "main",
        "chat": "room-1",
        "audience": "direct",
        "kind": "message",
        "principal": Principal("user-1"),
        "text": text,
        "occurred_at": datetime(2031, 3, 10, 23, 30, tzinfo=UTC),
    }
    return Event(**(fields | changed))


def whole(channel: str, text: str) -> Sequence[str]:
    """A channel without a size limit."""
    return (text,)


def a_turn(
    agent: Agent,
    journal: JournalDouble,
    *,
    event: Event | None = None,
    snapshot: Snapshot | None = None,
    split: Callable[[str, str], Sequence[str]] = whole,
    notes: Notebook | None = None,
    run_id: UUID = RUN_ID,
) -> Turn:
    """A turn of `agent`; bound to a conversation when it has a snapshot."""
    event = event or an_event()
    return Turn(
        agent=agent,
        run_id=run_id,
        event=event,
        principal=event.principal,
        user=None,
        snapshot=snapshot,
        journal=journal,
        split=split,
        notes=notes,
        meter=Meter(),
    )


async def run_to_the_end(agent: Agent, **turn: Any) -> JournalDouble:
    """Run `agent` on an empty journal."""
    journal = JournalDouble()
    await run_agent(agent, a_turn(agent, journal, **turn))
    return journal


class StrictModel:
    """A scripted provider that refuses, as HTTP 400, a history no real one accepts; keeps what it was sent."""

    def __init__(self, *answers: ModelResponse | Callable[[list[ModelMessage]], ModelResponse]) -> None:
        self.answers = list(answers)
        self.seen: list[list[ModelMessage]] = []
        self.tools_offered: list[set[str]] = []
        self.model = FunctionModel(self._respond, model_name="strict")

    @property
    def calls(self) -> int:
        """How often the provider was asked."""
        return len(self.seen)

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if problem := history_problem(messages):
            raise ModelHTTPError(400, "strict", problem)
        self.seen.append(list(messages))
        self.tools_offered.append({tool.name for tool in info.function_tools})
        answer = self.answers.pop(0) if self.answers else ModelResponse([TextPart("done")])
        return answer(messages) if callable(answer) else answer


def history_problem(messages: Sequence[ModelMessage]) -> str | None:
    """Why a strict provider would refuse `messages`: roles that do not alternate, a blank part, an open call."""
    if not messages or not isinstance(messages[0], ModelRequest):
        return "the first message is not the user's"
    if not isinstance(messages[-1], ModelRequest):
        return "the last message is not the user's"
    open_calls: set[str] = set()
    for before, message in zip([None, *messages], messages, strict=False):
        if before is not None and type(before) is type(message):
            return "two messages of one role in a row"
        if any(map(is_blank, message.parts)):
            return "a part without a word"
        if isinstance(message, ModelResponse):
            open_calls = {part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)}
            continue
        answered = {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
        if answered != open_calls:
            return "tool calls and results do not pair"
        if not message.parts:
            return "an empty message"
    return None


def is_blank(part: object) -> bool:
    """Whether a part is to carry words and carries none; providers refuse white space alone as well."""
    if not isinstance(part, (UserPromptPart, TextPart)):
        return False
    return not part.content or (isinstance(part.content, str) and not part.content.strip())


def user_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Every user text in `messages`, in order."""
    return [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]


def system_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Every system text in `messages`, instructions included."""
    parts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, SystemPromptPart)
    ]
    return parts + [m.instructions for m in messages if isinstance(m, ModelRequest) and m.instructions]


def tool_results(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    """Every tool result in `messages`, in order."""
    return [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def calls(*named: tuple[str, Mapping[str, Any]]) -> ModelResponse:
    """A response that calls tools, side by side."""
    return ModelResponse(
        [ToolCallPart(name, dict(args), f"c{number}-{name}") for number, (name, args) in enumerate(named)]
    )


AgentFunction = Callable[[Turn], Awaitable[None]]
