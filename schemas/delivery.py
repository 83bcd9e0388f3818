"""Delivery: the command on `channel.deliveries`, the states of a send and who may move them, the reply's key.

PENDING -> SENDING -> SENT | FAILED | UNCERTAIN, or back to PENDING when certainly not sent; UNCERTAIN ->
SENT | PENDING | FAILED | UNKNOWN by the reconciler. A crash in SENDING leaves UNCERTAIN. SENT is never
left. The command is a wake-up: the truth about a delivery is its row, and a lost or forged command changes
nothing.
"""

import re
from enum import StrEnum
from typing import Annotated, Final, NamedTuple, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas import jsonio
from schemas.reason import Reason, RefusedRecord

DELIVERY_TYPE: Final = "parley.delivery.v1"
MAX_COMMAND_BYTES: Final = 8 * 1024
MAX_COMMAND_ADDRESSES: Final = 200


class DeliveryState(StrEnum):
    """Where a send stands."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    UNCERTAIN = "uncertain"
    UNKNOWN = "unknown"

    @property
    def is_final(self) -> bool:
        """True where only an operator, or a late receipt, moves it again."""
        return self in (DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.UNKNOWN)


class Mover(StrEnum):
    """Who moves a delivery."""

    SENDER = "sender"
    RECONCILER = "reconciler"
    RECEIPT = "receipt"
    CANCEL = "cancel"
    OPERATOR = "operator"


_P, _S, _OK = DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.SENT
_F, _UC, _UK = DeliveryState.FAILED, DeliveryState.UNCERTAIN, DeliveryState.UNKNOWN

LEGAL_MOVES: Final[dict[Mover, frozenset[tuple[DeliveryState, DeliveryState]]]] = {
    Mover.SENDER: frozenset(
        {(_P, _S), (_P, _F), (_P, _UK), (_S, _OK), (_S, _P), (_S, _F), (_S, _UC), (_S, _UK)}
    ),
    Mover.RECONCILER: frozenset(
        {(_P, _S), (_P, _F), (_S, _UC), (_UC, _OK), (_UC, _P), (_UC, _F), (_UC, _UK)}
    ),
    Mover.RECEIPT: frozenset({(_UC, _OK), (_UK, _OK)}),
    Mover.CANCEL: frozenset({(_P, _F), (_P, _UK), (_UC, _UK)}),
    Mover.OPERATOR: frozenset(
        {(_F, _P), (_UK, _P), (_UC, _OK), (_UK, _OK), (_F, _OK), (_P, _F), (_UC, _F), (_UK, _F)}
    ),
}


def may_move(mover: Mover, old: DeliveryState, new: DeliveryState) -> bool:
    """Whether `mover` may take a delivery from `old` to `new`."""
    return (old, new) in LEGAL_MOVES[mover]


class InvalidCommand(RefusedRecord):
    """The value is not a delivery command; `field` is the first wrong one."""

    reason = Reason.INVALID_EVENT

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem


class DeliveryCommand(BaseModel):
    """Look at these addresses now: something was journalled for each; version 1.

    A wake-up and nothing more: what to send, and whether, stands in the database.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", title=DELIVERY_TYPE)

    version: Annotated[int, Field(strict=True, ge=1, le=1)] = 1
    address_ids: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, lt=2**63)], ...],
        Field(min_length=1, max_length=MAX_COMMAND_ADDRESSES),
    ]

    @property
    def record_key(self) -> bytes:
        """The Kafka key: the first address id in decimal, which spreads commands over partitions."""
        return b"%d" % self.address_ids[0]

    def encode(self) -> bytes:
        """The record value."""
        return jsonio.dumps({"version": self.version, "address_ids": list(self.address_ids)})

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """The command in a record value. Raises InvalidJson or InvalidCommand only."""
        document = jsonio.loads(value[: MAX_COMMAND_BYTES + 1])
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise InvalidCommand(".".join(map(str, first["loc"])), first["msg"]) from None


_REPLY_KEY = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,8})(?::(0|[1-9][0-9]{0,8}))?",
    re.ASCII,
)


class ReplyKey(NamedTuple):
    """The idempotency key of a reply: which run, which step, which call in it, and which chunk of a split
    one.
    """

    run: UUID
    step: int
    call: int
    chunk: int | None = None

    def __str__(self) -> str:
        return reply_key(self.run, self.step, self.call, self.chunk)

    @classmethod
    def parse(cls, text: str) -> "ReplyKey | None":
        """The key in its text form, or None when it is not one."""
        match = _REPLY_KEY.fullmatch(text)
        if match is None:
            return None
        run, step, call, chunk = match.groups()
        return cls(UUID(run), int(step), int(call), None if chunk is None else int(chunk))


def reply_key(run: UUID, step: int, call: int, chunk: int | None = None) -> str:
    """The text form `run:step:call`, or `run:step:call:chunk` for one of several chunks."""
    whole = f"{run}:{step}:{call}"
    return whole if chunk is None else f"{whole}:{chunk}"
