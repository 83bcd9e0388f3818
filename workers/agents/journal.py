"""The step journal's port: what a run records, where it stands, and how a reply becomes part of it.

A position is (step, call). Steps count from 0 in the order the run takes them. A function agent's `step`, `reply`,
`emit` and `handoff` are each one step at call 0. A model response is a step at call 0, and its tool calls stand at
calls 1, 2, ... in the order of the response, however they run. What is called inside a tool or step at call c is its
child j at call c * 1000 + j.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol

from workers.admission.policy import Candidate

StepKind = Literal["model", "tool", "step", "emit"]
StepState = Literal["started", "finished"]
Position = tuple[int, int]

CHILDREN: Final = 1_000
MAX_REPLY_BYTES: Final = 2 * 1024 * 1024
"""The longest reply or emit, in UTF-8: it is held whole in memory, in one row a chunk and in one commit."""


class StepRecord(NamedTuple):
    """One position of a run's journal; `result` is strict JSON, and None until the step is finished."""

    step: int
    call: int
    kind: StepKind
    name: str
    args_digest: bytes
    agent_version: str
    state: StepState
    result: bytes | None


class Emit(NamedTuple):
    """A message to send, as the chunks its channel wants; `recalled` when it belongs to the conversation."""

    channel: str
    account: str
    address: str
    chunks: tuple[str, ...]
    recalled: bool


class TurnJournal(Protocol):
    """The journal of one run, held by one owner."""

    @property
    def recorded(self) -> Mapping[Position, StepRecord]:
        """What the run had journalled when this turn began."""

    async def write(
        self, record: StepRecord, emit: Emit | None = None, hand_off: Candidate | None = None
    ) -> None:
        """Commit `record` (over an earlier one at its position) with `emit`, and the run `hand_off` is queued by.

        Raises LostOwnership.
        """


def child(call: int, number: int) -> int:
    """The call index of the child `number` (from 1) of the call index `call`."""
    return call * CHILDREN + number
