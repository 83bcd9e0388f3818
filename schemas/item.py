"""Transcript items: what a conversation records of an input and of a reply.

A later turn's snapshot may hold accepted inputs and sent replies only.
"""

from enum import StrEnum


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
