"""Delivery: the command on `channel.deliveries`, the states of a send, the reply's key.

PENDING -> SENDING -> SENT | FAILED | UNCERTAIN, or back to PENDING when certainly not sent; UNCERTAIN ->
SENT | PENDING | FAILED | UNKNOWN by the reconciler. A crash in SENDING leaves UNCERTAIN. SENT is never
left. The command is a wake-up: the truth about a delivery is its row, and a lost or forged command changes
nothing.
"""

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


class ReplyKey(NamedTuple):
    """The idempotency key of a reply: which run, which step, which call in it, and which chunk of a split one."""

    run: UUID
    step: int
    call: int
    chunk: int | None = None

    def __str__(self) -> str:
        whole = f"{self.run}:{self.step}:{self.call}"
        return whole if self.chunk is None else f"{whole}:{self.chunk}"
