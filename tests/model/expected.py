"""What must be so, from the rules of conversation memory alone: no code of the product, no database, no clock.

Time is hours since the example began. A `Book` is one conversation; of what the rules leave open (when a sender
takes a message, what a look-up finds) the machine tells the model what it saw, and the model says whether it may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

DAY: Final = 24.0
RECALLED_ITEMS: Final = 4
STORED_ITEMS: Final = 6
ITEM_BYTES: Final = 64
RETENTION: Final = 5 * DAY
RESERVED_FOR: Final = 7 * DAY
RUNS_KEPT: Final = 8 * DAY
RECALL_WAIT: Final = 1.0
SEND_HELD_FOR: Final = 1.5
"""Hours after which a send that never answered counts as abandoned; more than the channel's time-out."""

ChunkState = Literal["pending", "sending", "sent", "failed", "uncertain", "unknown"]
FINAL: Final = frozenset({"sent", "failed", "unknown"})


@dataclass(eq=False)
class Chunk:
    """One message to send. `doubted`: an attempt of it may have arrived."""

    key: str
    reply: Reply
    text: str
    state: ChunkState = "pending"
    cancelled: bool = False
    doubted: bool = False
    sent_from: float = 0.0
    sender: object = None

    @property
    def final(self) -> bool:
        return self.state in FINAL

    def abandon(self) -> None:
        """Its run was cancelled, or its conversation reset or deleted."""
        if self.state == "pending":
            self.state = "unknown" if self.doubted else "failed"
        elif not self.final:
            self.cancelled = True

    def fail(self) -> None:
        """It was certainly refused now: what follows it in its reply is not sent either."""
        self.state = "unknown" if self.doubted else "failed"
        if self.state == "failed":
            self.reply.fail_rest(self)


@dataclass(eq=False)
class Reply:
    """What a run sent at once; recalled when it goes exactly where the event came from."""

    run: Run
    key: str
    recalled: bool
    at: float
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def open(self) -> bool:
        return not all(chunk.final for chunk in self.chunks)

    @property
    def status(self) -> str:
        states = {chunk.state for chunk in self.chunks}
        if self.open:
            return "pending"
        return "sent" if states == {"sent"} else "failed" if "failed" in states else "unknown"

    def fail_rest(self, failed: Chunk) -> None:
        for chunk in self.chunks[self.chunks.index(failed) + 1 :]:
            if chunk.state == "pending":
                chunk.state = "unknown" if chunk.doubted else "failed"


@dataclass(eq=False)
class Item:
    """One transcript record: an input (`body` None where it was too large to keep) or a reply."""

    generation: int
    run: Run
    at: float
    body: str | None
    event_id: str | None = None
    reply: Reply | None = None
    withheld: bool = False

    @property
    def kind(self) -> str:
        return "input" if self.reply is None else "reply"

    @property
    def status(self) -> str:
        if self.reply is not None:
            return self.reply.status
        return "withheld" if self.withheld else "accepted"

    @property
    def recalled(self) -> bool:
        return self.status in ("accepted", "sent") and self.body is not None

    @property
    def omitted(self) -> bool:
        return self.status in ("pending", "unknown") or (self.status == "accepted" and self.body is None)


@dataclass(eq=False)
class Note:
    body: str
    expires: float | None
    edit: int
    """The number of the edit that wrote it: later ones come first."""


@dataclass(frozen=True)
class Op:
    """Something an agent does; after a crash it does the same again from the start."""

    act: Literal["reply", "elsewhere", "set", "remove"]
    text: str = ""
    key: str = ""
    expires_in: float | None = None


@dataclass(eq=False)
class Run:
    """One run. `holder` is whoever may write for it now; `journalled` counts the operations that are in its journal."""

    run_id: UUID
    agent: str
    event_id: str
    text: str
    book: Book
    generation: int
    status: Literal["open", "succeeded", "failed", "cancelled"] = "open"
    ended: float | None = None
    holder: Any = None
    due: float = 0.0
    crashes: int = 0
    snapshot: Past | None = None
    frozen: bytes | None = None
    script: list[Op] = field(default_factory=list)
    journalled: int = 0
    receipts: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Note edits by position: act and key."""
    replies: list[Reply] = field(default_factory=list)
    reserved_until: float | None = None
    pruned: bool = False


@dataclass(frozen=True)
class Past:
    """The snapshot that a run must be shown; `omitted` is None where more was left out than the rules count."""

    notes: tuple[tuple[str, str], ...]
    history: tuple[tuple[str, str], ...]
    omitted: int | None


@dataclass(eq=False)
class Book:
    """One conversation."""

    name: str
    lane_id: int | None = None
    generation: int = 0
    owner: Run | None = None
    queue: list[Run] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    notes: dict[str, Note] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Texts of deleted generations, which nothing may hold any more."""
    forgotten: set[str] = field(default_factory=set)
    """Texts of the transcript before the last reset, which no snapshot may hold."""

    def live_notes(self, now: float) -> list[tuple[str, str]]:
        """Key and body, most recently edited first."""
        live = [(n.edit, k, n.body) for k, n in self.notes.items() if n.expires is None or n.expires > now]
        return [(key, body) for _, key, body in sorted(live, reverse=True)]

    def may_be_claimed(self, now: float) -> Literal["yes", "no", "either"]:
        """Whether the head can be claimed: due, held by nobody, and the replies before it final or waited for."""
        if not self.queue or self.queue[0].holder is not None or self.queue[0].due > now:
            return "no"
        if self.owner is not None:
            return "yes"
        replies = [reply for run in self.runs for reply in run.replies if reply.recalled]
        if any(r.open and r.at + RECALL_WAIT > now and r.run.generation == self.generation for r in replies):
            return "no"
        # Where an older reply is still in doubt, the wait may count from the last reply, open or not.
        waits = any(r.open for r in replies) and any(r.at + RECALL_WAIT > now for r in replies)
        return "either" if waits else "yes"

    runs: list[Run] = field(default_factory=list)

    def begin(self, run: Run, holder: object, now: float) -> None:
        """The claim: the snapshot is frozen once, the input enters the transcript, old and surplus items leave."""
        assert run is self.queue[0], "turns go in admission order"
        assert self.owner in (None, run), "a conversation has one owner"
        assert run.generation == self.generation
        self.owner, run.holder = run, holder
        if run.snapshot is None:
            run.snapshot = self._past(run, now)
            self._record_input(run, now)
            self.trim(self.generation, now, protected=None)

    def _past(self, run: Run, now: float) -> Past:
        seen = [
            item
            for item in self.items
            if item.generation == self.generation
            and item.event_id != run.event_id
            and item.at + RETENTION > now
        ]
        newest = [item for item in seen if item.recalled][-RECALLED_ITEMS:]
        countable = [item for item in seen if item.recalled or item.omitted]
        omitted = sum(item.omitted for item in seen) if len(countable) <= RECALLED_ITEMS else None
        roles = {"input": "user", "reply": "assistant"}
        return Past(
            tuple(self.live_notes(now)),
            tuple((roles[item.kind], item.body or "") for item in newest),
            omitted,
        )

    def _record_input(self, run: Run, now: float) -> None:
        known = any(i.generation == self.generation and i.event_id == run.event_id for i in self.items)
        if not known:
            body = run.text if len(run.text.encode()) <= ITEM_BYTES else None
            self.items.append(Item(self.generation, run, now, body, event_id=run.event_id))

    def trim(self, generation: int, now: float, protected: Run | None) -> None:
        """The newest stay, none longer than the retention; what an active turn made stays."""
        own = [item for item in self.items if item.generation == generation]
        doomed = own[: max(0, len(own) - STORED_ITEMS)] + [i for i in own if i.at + RETENTION <= now]
        self.items = [i for i in self.items if i not in doomed or (protected and i.run is protected)]

    def renew(self, *, delete: bool, keep_notes: bool) -> None:
        """Reset or delete: queued runs end, what is not sent yet never is, the next generation begins."""
        assert self.owner is None
        for run in self.queue:
            run.status = "cancelled"
        for run in self.runs:
            if run.status != "open":
                abandon(run)
        ended, self.queue = self.queue, []
        self.forgotten |= {item.body for item in self.items if item.body}
        if delete:
            self.gone |= {i.body for i in self.items if i.body} | {n.body for n in self.notes.values()}
            self.items.clear()
            for run in self.runs:
                run.receipts.clear()
        if delete or not keep_notes:
            self.forgotten |= {note.body for note in self.notes.values()}
            self.notes.clear()
        self.generation += 1
        self.just_ended = ended

    just_ended: list[Run] = field(default_factory=list)


def abandon(run: Run) -> None:
    """Nothing more of this run is sent."""
    for reply in run.replies:
        for chunk in reply.chunks:
            chunk.abandon()
