"""Transcript items: what a conversation records of an input and of a reply, and which of it a later turn
sees.
"""

from collections.abc import Iterable
from enum import StrEnum

from schemas.delivery import DeliveryState


class ItemKind(StrEnum):
    """What an item is."""

    INPUT = "input"
    REPLY = "reply"


class ItemStatus(StrEnum):
    """An input is accepted, or withheld by a later denial; a reply is pending until its deliveries are
    final.
    """

    ACCEPTED = "accepted"
    WITHHELD = "withheld"
    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"


def is_recalled(kind: ItemKind, status: ItemStatus) -> bool:
    """Whether a later turn's snapshot may hold the item: accepted inputs and sent replies only."""
    return (kind, status) in ((ItemKind.INPUT, ItemStatus.ACCEPTED), (ItemKind.REPLY, ItemStatus.SENT))


def reply_status(chunks: Iterable[DeliveryState]) -> ItemStatus:
    """The status of a reply from the states of its chunks: sent when all are, else the worst of them."""
    states = set(chunks)
    for state, status in _WORST_FIRST:
        if state in states:
            return status
    return ItemStatus.SENT if states else ItemStatus.PENDING


_WORST_FIRST = (
    (DeliveryState.FAILED, ItemStatus.FAILED),
    (DeliveryState.UNKNOWN, ItemStatus.UNKNOWN),
    (DeliveryState.UNCERTAIN, ItemStatus.PENDING),
    (DeliveryState.SENDING, ItemStatus.PENDING),
    (DeliveryState.PENDING, ItemStatus.PENDING),
)
