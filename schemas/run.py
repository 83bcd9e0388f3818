"""Runs: the states one invocation of an agent goes through, and ids that sort by time.

QUEUED -> RUNNING -> SUCCEEDED | FAILED | CANCELLED; RUNNING <-> WAITING (approval), RUNNING <->
INTERRUPTED (its worker is gone); QUEUED -> JOINED | REJECTED by the agent's `on_busy`, or CANCELLED.
Terminal states are never left.
"""

import os
import threading
import time
from enum import StrEnum
from typing import NewType
from uuid import UUID

RunId = NewType("RunId", UUID)
DeliveryId = NewType("DeliveryId", UUID)
SessionId = NewType("SessionId", UUID)
ConversationId = NewType("ConversationId", int)
AddressId = NewType("AddressId", int)


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    JOINED = "joined"
    REJECTED = "rejected"

    @property
    def is_terminal(self) -> bool:
        """True when the run is over for good."""
        return self in TERMINAL


TERMINAL = frozenset(
    {
        RunStatus.SUCCEEDED,
        RunStatus.FAILED,
        RunStatus.CANCELLED,
        RunStatus.JOINED,
        RunStatus.REJECTED,
    }
)


def uuid7(now_ms: int, counter: int, tail: bytes) -> UUID:
    """The RFC 9562 version 7 UUID of a Unix time in milliseconds, a 12-bit `counter` and 8 random bytes."""
    rest = int.from_bytes(tail[:8], "big") & (1 << 62) - 1
    return UUID(int=(now_ms & (1 << 48) - 1) << 80 | 0x7 << 76 | (counter & 0xFFF) << 64 | 0b10 << 62 | rest)


class Uuid7Source:
    """Version 7 UUIDs that only grow, also within one millisecond and when the clock steps back;
    thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_ms = -1
        self._counter = 0

    def next(self, now_ms: int | None = None) -> UUID:
        """A new id at `now_ms` (default: the system clock), greater than every one before it."""
        tail = os.urandom(10)
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        with self._lock:
            if now_ms > self._last_ms:
                self._last_ms, self._counter = now_ms, int.from_bytes(tail[8:], "big") & 0x7FF
            elif self._counter < 0xFFF:
                self._counter += 1
            else:
                self._last_ms, self._counter = self._last_ms + 1, 0
            return uuid7(self._last_ms, self._counter, tail)


_process = Uuid7Source()


def new_uuid7() -> UUID:
    """A new version 7 UUID, greater than every one this process made before."""
    return _process.next()
