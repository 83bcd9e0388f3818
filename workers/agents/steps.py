"""Where a run stands in its journal: positions in call order, what is recorded there, and one fenced way to write.

Positions are given out when a call begins, so calls that run side by side keep their own. Once the journal says that
ownership is lost, or the turn has ended, every later call is refused.
"""

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final
from uuid import UUID

from workers.admission.policy import Candidate
from workers.agents import policy
from workers.agents.errors import LostOwnership, NestedTooDeep, ReplayDiverged, TooManyCalls
from workers.agents.journal import CHILDREN, Emit, Position, StepKind, StepRecord, TurnJournal, child
from workers.agents.policy import Expected, Interrupted, OnChange, Replay, Run

MAX_DEPTH: Final = 2


@dataclass(slots=True)
class Scope:
    """The tool or step that runs now; `staged` takes the emit of a tool that commits it with its own record."""

    steps: "Steps"
    step: int
    call: int
    depth: int
    stages: bool = False
    staged: Emit | None = None
    children: int = 0
    _token: "Token[Scope | None] | None" = field(default=None, repr=False)

    def __enter__(self) -> "Scope":
        self._token = _scope.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._token is not None:
            _scope.reset(self._token)

    def place(self) -> Position:
        """The position of the next thing called inside. Raises NestedTooDeep, TooManyCalls."""
        if self.depth >= MAX_DEPTH:
            raise NestedTooDeep
        if self.children >= CHILDREN - 1:
            raise TooManyCalls(CHILDREN - 1)
        self.children += 1
        return self.step, child(self.call, self.children)


class Steps:
    """The numbered steps of one run under one owner."""

    __slots__ = (
        "_closed",
        "_journal",
        "_next",
        "_on_change",
        "_recorded",
        "_version",
        "emitted_before",
        "run_id",
    )

    def __init__(self, run_id: UUID, version: str, on_change: OnChange, journal: TurnJournal) -> None:
        self.run_id = run_id
        self._version = version
        self._on_change: OnChange = on_change
        self._journal = journal
        self._recorded = journal.recorded
        self.emitted_before = any(record.kind == "emit" for record in self._recorded.values())
        """Whether an earlier life of this run emitted something, wherever to: its record does not say."""
        self._next = 0
        self._closed = False

    @property
    def scope(self) -> Scope | None:
        """The tool or step of this run that the caller is inside of."""
        scope = _scope.get()
        return scope if scope is not None and scope.steps is self else None

    def take(self) -> int:
        """The next step number."""
        step = self._next
        self._next += 1
        return step

    def place(self) -> Position:
        """The position of what is called now: the next step, or the next child of the tool or step around it."""
        scope = self.scope
        return (self.take(), 0) if scope is None else scope.place()

    def enter(self, at: Position, *, stages: bool = False) -> Scope:
        """A context for what runs at `at`, so that calls inside are numbered below it."""
        outer = self.scope
        return Scope(self, *at, depth=1 if outer is None else outer.depth + 1, stages=stages)

    def meet(
        self, at: Position, kind: StepKind, name: str, digest: bytes, *, repeatable: bool = True
    ) -> Run | Replay | Interrupted:
        """What to do at `at`. Raises ReplayDiverged, or LostOwnership after it was lost or the turn has ended."""
        if self._closed:
            raise LostOwnership
        record = self._recorded.get(at)
        if record is None:
            return _RUN
        verdict = policy.meet(
            record, Expected(kind, name, digest, self._version), self._on_change, repeatable=repeatable
        )
        if isinstance(verdict, policy.Diverged):
            raise ReplayDiverged(*at, verdict.what)
        return verdict

    async def start(self, at: Position, kind: StepKind, name: str, digest: bytes) -> None:
        """Record that something which may not be repeated is about to run."""
        await self._write(StepRecord(*at, kind, name, digest, self._version, "started", None))

    async def finish(
        self,
        at: Position,
        kind: StepKind,
        name: str,
        digest: bytes,
        result: bytes,
        emit: Emit | None = None,
        hand_off: Candidate | None = None,
    ) -> None:
        """Record the result, with what is emitted or handed off, in one commit."""
        record = StepRecord(*at, kind, name, digest, self._version, "finished", result)
        await self._write(record, emit, hand_off)

    def close(self) -> None:
        """The turn has ended: nothing more of it is journalled."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether ownership was lost or the turn has ended."""
        return self._closed

    async def _write(
        self, record: StepRecord, emit: Emit | None = None, hand_off: Candidate | None = None
    ) -> None:
        if self._closed:
            raise LostOwnership
        try:
            await self._journal.write(record, emit, hand_off)
        except LostOwnership:
            self._closed = True
            raise


_RUN: Final = Run()
_scope: ContextVar[Scope | None] = ContextVar("parley_scope", default=None)
