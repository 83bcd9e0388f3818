"""What an agent is handed for one run: the event, what it may see of the past, and journalled ways to act.

`reply`, `emit`, `step` and `handoff` are numbered in the order they are called and committed before they return. After
a crash the agent runs again from the start, and every one of them that was committed gives back what it gave then.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, overload
from uuid import UUID

from schemas.event import Attachment, Event
from schemas.identity import Principal
from schemas.run import new_uuid7
from schemas.text import clean
from workers.agents.agent import Agent
from workers.agents.canonical import args_digest, decode_result, encode_result
from workers.agents.errors import (
    BadStepName,
    EmptyReply,
    LostOwnership,
    NoConversation,
    NoReplyAddress,
    NoteRefused,
    NotesDenied,
    NoText,
    ReplayDiverged,
    ReplyTooLong,
    UnknownAgent,
)
from workers.agents.journal import MAX_REPLY_BYTES, Emit, Position, TurnJournal
from workers.agents.meter import Meter
from workers.agents.policy import Replay
from workers.agents.steps import Steps
from workers.agents.unbound import DISPATCH_CHANNEL, handed_off, unbound_candidate
from workers.channels.splitting import MAX_CHUNKS, TooManyChunks
from workers.memory.access import Deny
from workers.memory.notes import Act, Note, Notebook, NotePage, NotOwner, Receipt, Refused
from workers.memory.policy import MAX_LISTED
from workers.memory.snapshot import Exchange, NoteEntry, Snapshot

T = TypeVar("T")

DONE: Final = b"null"
MAX_STEP_NAME: Final = 200


class Split(Protocol):
    """How a channel cuts a long text into the messages it can send."""

    def __call__(self, channel: str, text: str, /) -> Sequence[str]: ...


class Turn:
    """One run's own view of the engine. Built by the turns room; agents and tools only use it."""

    __slots__ = (
        "_agents",
        "_split",
        "agent",
        "event",
        "meter",
        "notebook",
        "principal",
        "snapshot",
        "steps",
        "user",
    )

    def __init__(
        self,
        *,
        agent: Agent,
        run_id: UUID,
        event: Event,
        principal: Principal,
        user: str | None,
        snapshot: Snapshot | None,
        journal: TurnJournal,
        split: Split,
        notes: Notebook | None = None,
        meter: Meter | None = None,
        agents: Mapping[str, Agent] = MappingProxyType({}),
    ) -> None:
        """`agents` are those that work may be handed off to, by name."""
        self._agents = agents
        self.agent = agent
        self.event = event
        self.principal = principal
        self.user = user
        self.snapshot = snapshot
        self.notebook = notes
        self.meter = Meter() if meter is None else meter
        self.steps = Steps(run_id, agent.version, agent.on_change, journal)
        self._split = split

    @property
    def run_id(self) -> UUID:
        """The run's id, the same in every attempt."""
        return self.steps.run_id

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The event's attachments: metadata and links."""
        return self.event.attachments

    @property
    def has_conversation(self) -> bool:
        """Whether the run is bound to a conversation."""
        return self.snapshot is not None

    @property
    def history(self) -> tuple[Exchange, ...]:
        """The recalled transcript, oldest first, frozen before the run began; empty in an unbound run."""
        return () if self.snapshot is None else self.snapshot.history

    @property
    def notes(self) -> tuple[NoteEntry, ...]:
        """The recalled notes, frozen before the run began; edits of this run show in the next one."""
        return () if self.snapshot is None else self.snapshot.notes

    @property
    def effect_id(self) -> str:
        """An idempotency key for the tool or step that runs now (outside one: for the run); the same when replayed."""
        scope = self.steps.scope
        return str(self.run_id) if scope is None else f"{self.run_id}:{scope.step}:{scope.call}"

    async def reply(self, text: str) -> None:
        """Send `text` to where the event came from.

        Raises EmptyReply, ReplyTooLong (MAX_REPLY_BYTES), TooManyChunks, LimitExceeded, ReplayDiverged or
        LostOwnership; NoReplyAddress in a dispatched run.
        """
        event = self.event
        if event.channel == DISPATCH_CHANNEL:
            raise NoReplyAddress
        await self._send(event.channel, event.account, event.address, text)

    async def emit(self, channel: str, address: str, body: str, account: str | None = None) -> None:
        """Send `body` to an address of any registered channel; `account` is the event's own unless given.

        It is recalled only if it goes exactly where a reply would go. Raises what `reply` raises.
        """
        await self._send(channel, self.event.account if account is None else account, address, body)

    @overload
    async def step(self, name: str, fn: Callable[..., Any], *args: Any, returns: type[T]) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[..., Any], *args: Any) -> Any: ...
    async def step(self, name: str, fn: Callable[..., Any], *args: Any, returns: Any = None) -> Any:
        """Call `fn(*args)` once, journal what it returns, and give that back now and after every crash.

        The value must be JSON, and comes back as plain data, or as `returns` when a type is given. What was in flight
        at a crash is called again; use `effect_id` inside. Raises BadStepName (MAX_STEP_NAME characters),
        NotJournalable and what `reply` raises.
        """
        if not _is_step_name(name):
            raise BadStepName(MAX_STEP_NAME)
        at = self.steps.place()
        self.meter.count_step(self.agent.limits)
        digest = args_digest(name, args)
        met = self.steps.meet(at, "step", name, digest)
        if isinstance(met, Replay):
            return decode_result(met.result, returns)
        with self.steps.enter(at):
            value = fn(*args)
            if isawaitable(value):
                value = await value
        result = encode_result(name, value)
        await self.steps.finish(at, "step", name, digest, result)
        return decode_result(result, returns)

    async def handoff(self, agent: str, text: str | None = None, payload: Any = None) -> UUID:
        """Queue one run of another agent of the app, and give its id now and after every crash.

        It gets this event's place, sender and attachments, with `text` (the event's own unless given) and `payload`
        (JSON). It is bound to no conversation, whatever the agent or the payload says; its replies are not recalled.
        Raises UnknownAgent, TooManyHandOffs, NotJournalable, TooLarge and what `reply` raises.
        """
        if agent not in self._agents:
            raise UnknownAgent(agent)
        at = self.steps.place()
        self.meter.count_step(self.agent.limits)
        digest = args_digest("handoff", (agent, text, payload))
        met = self.steps.meet(at, "emit", "handoff", digest)
        if isinstance(met, Replay):
            return UUID(decode_result(met.result))
        run_id = new_uuid7()
        event = handed_off(self.event, run_id, text, payload)
        run = unbound_candidate(self._agents[agent], event, run_id, None)
        await self.steps.finish(at, "emit", "handoff", digest, encode_result("handoff", run_id), hand_off=run)
        return run_id

    async def set_note(self, key: str, text: str, expires_in: timedelta | None = None) -> Receipt:
        """Save a note of this conversation, once in every attempt.

        Raises NoConversation, NotesDenied, NoteRefused, ReplayDiverged and LostOwnership.
        """
        book = self._book()
        seconds = None if expires_in is None else expires_in.total_seconds()
        return await self._note_edit(
            "set", key, lambda at: book.set(at, key, text, expires_in), (key, text, seconds)
        )

    async def remove_note(self, key: str) -> Receipt:
        """Remove a note; `changed` is False when there was none. Raises what `set_note` raises."""
        book = self._book()
        return await self._note_edit("remove", key, lambda at: book.remove(at, key), (key,))

    async def get_note(self, key: str) -> Note | None:
        """The live note `key`, edits of this run included; not journalled.

        Raises NoConversation, NotesDenied, and LostOwnership after the turn.
        """
        return self._allowed(await self._book().get(key))

    async def list_notes(self, cursor: str | None = None, limit: int = MAX_LISTED) -> NotePage:
        """At most `limit` (to 50) live notes after `cursor`, by key; not journalled.

        Raises what `get_note` raises, and NoteRefused for a cursor that this conversation did not give.
        """
        page = await self._book().list(cursor, limit)
        if isinstance(page, Refused):
            raise NoteRefused(page.problem)
        return self._allowed(page)

    async def _send(self, channel: str, account: str, address: str, text: str) -> None:
        if not isinstance(text, str):
            raise NoText(type(text).__name__)
        body = clean(text)
        if not body.strip():
            raise EmptyReply
        if (size := len(body.encode())) > MAX_REPLY_BYTES:
            raise ReplyTooLong(size, MAX_REPLY_BYTES)
        self.meter.count_reply(self.agent.limits)
        await self._journal_emit(channel, account, address, body)
        self.meter.answered = self.meter.answered or self._is_home(channel, account, address)

    async def _journal_emit(self, channel: str, account: str, address: str, body: str) -> None:
        scope = self.steps.scope
        if scope is not None and scope.stages and scope.staged is None:
            scope.staged = self._emit_of(channel, account, address, body)
            return
        at = self.steps.place()
        digest = args_digest("emit", (channel, account, address, body))
        if isinstance(self.steps.meet(at, "emit", "emit", digest), Replay):
            return
        emit = self._emit_of(channel, account, address, body)
        await self.steps.finish(at, "emit", "emit", digest, DONE, emit)

    def _emit_of(self, channel: str, account: str, address: str, body: str) -> Emit:
        chunks = tuple(self._split(channel, body))
        if not chunks:
            raise EmptyReply
        if len(chunks) > MAX_CHUNKS:
            raise TooManyChunks(MAX_CHUNKS)
        recalled = self.has_conversation and self._is_home(channel, account, address)
        return Emit(channel, account, address, chunks, recalled=recalled)

    def _is_home(self, channel: str, account: str, address: str) -> bool:
        event = self.event
        return (channel, account, address) == (event.channel, event.account, event.address)

    def _book(self) -> Notebook:
        if self.notebook is None or self.snapshot is None:
            raise NoConversation
        if self.steps.closed:
            raise LostOwnership
        return self.notebook

    async def _note_edit(
        self,
        act: Act,
        key: str,
        edit: Callable[[Position], Awaitable[Receipt | Refused | NotOwner | Deny]],
        args: tuple[object, ...],
    ) -> Receipt:
        scope = self.steps.scope
        if scope is not None:
            return await self._edit_once(scope.place(), act, key, edit)

        async def edit_here(*_: object) -> Receipt:
            here = self.steps.scope
            assert here is not None
            return await self._edit_once((here.step, here.call), act, key, edit)

        made = await self.step(f"{act}_note", edit_here, *args, returns=dict[str, Any])
        return Receipt(**made)

    async def _edit_once(
        self,
        at: Position,
        act: Act,
        key: str,
        edit: Callable[[Position], Awaitable[Receipt | Refused | NotOwner | Deny]],
    ) -> Receipt:
        """The receipt of this edit at `at`; where another edit stands there, made before a crash, at the next place."""
        scope = self.steps.scope
        assert scope is not None
        while True:
            receipt = self._made(await edit(at))
            if (receipt.act, receipt.key) == (act, key):
                return receipt
            if self.agent.on_change == "fail":
                raise ReplayDiverged(*at, "arguments")
            at = scope.place()

    def _made(self, outcome: Receipt | Refused | NotOwner | Deny) -> Receipt:
        if isinstance(outcome, Deny):
            raise self._denied(outcome)
        if isinstance(outcome, Refused):
            raise NoteRefused(outcome.problem)
        if isinstance(outcome, NotOwner):
            self.steps.close()
            raise LostOwnership
        return outcome

    def _allowed(self, outcome: T | Deny) -> T:
        if isinstance(outcome, Deny):
            raise self._denied(outcome)
        return outcome

    def _denied(self, answer: Deny) -> NotesDenied:
        self.meter.notes_denied += 1
        return NotesDenied(answer.reason)


def _is_step_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_STEP_NAME and clean(name) == name
