"""A channel without a platform: every capability, a 40-character limit, and faults that happen when told to.

What the peer of a real channel would hold is in its ledger. A ledger in memory serves one process; tests
that kill processes give one that outlives them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from workers.channels.port import (
    Absent,
    Capability,
    Found,
    KeySource,
    LookUp,
    NotSent,
    Outcome,
    Outgoing,
    Refused,
    Scope,
    Sent,
    SizeUnit,
    Uncertain,
    Unsure,
)
from workers.channels.splitting import size_of, split_text

LAB_LIMIT = 40


@dataclass(frozen=True, slots=True)
class Received:
    """One message as the lab's peer holds it."""

    key: str
    account: str
    address: str
    text: str
    at: datetime


class Ledger(Protocol):
    """What the peer holds, in the order of arrival."""

    def add(self, message: Received) -> None: ...

    def messages(self) -> Sequence[Received]: ...


class MemoryLedger:
    """A ledger that ends with the process."""

    def __init__(self) -> None:
        self._messages: list[Received] = []

    def add(self, message: Received) -> None:
        self._messages.append(message)

    def messages(self) -> Sequence[Received]:
        return self._messages


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one send: `accepts` says whether the peer keeps the message all the same."""

    kind: Literal["drop", "stall", "rate_limit", "server_error", "refuse", "unreachable"]
    accepts: bool = False
    retry_after: timedelta | None = None
    scope: Scope = "address"


class LabChannel:
    """`fail_next` queues faults for sends, `fail_look_ups` for questions; both are used up in order."""

    def __init__(
        self,
        name: str = "lab",
        capability: Capability = Capability.IDEMPOTENT,
        *,
        window: timedelta = timedelta(minutes=5),
        settling_time: timedelta = timedelta(0),
        transport_timeout: timedelta = timedelta(seconds=5),
        size_limit: int = LAB_LIMIT,
        size_unit: SizeUnit = "utf16",
        keys: KeySource | None = None,
        resend_unknown: Collection[str] = (),
        ledger: Ledger | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = name
        self.capability = capability
        self.window = window if capability is Capability.IDEMPOTENT_WINDOW else None
        self.settling_time = settling_time
        self.transport_timeout = transport_timeout
        self.size_limit = size_limit
        self.size_unit = size_unit
        self.keys = keys
        self.attempts: list[Outgoing] = []
        """Every request that reached the peer, repeats and refused ones too."""
        self._resend_unknown = frozenset(resend_unknown)
        self._ledger = ledger or MemoryLedger()
        self._keys_seen: dict[tuple[str, str], Received] = {}
        self._clock = clock
        self._faults: deque[Fault] = deque()
        self._failing_look_ups = 0

    @property
    def received(self) -> list[str]:
        """The texts that the peer holds, in the order of arrival."""
        return [message.text for message in self._ledger.messages()]

    @property
    def messages(self) -> Sequence[Received]:
        """What the peer holds, in the order of arrival."""
        return self._ledger.messages()

    def fail_next(self, *faults: Fault) -> None:
        """Let the next sends meet these faults, in order."""
        self._faults.extend(faults)

    def accept_then_drop_connection(self, times: int = 1) -> None:
        """Let the peer keep the next messages and the answers get lost."""
        self.fail_next(*[Fault("drop", accepts=True)] * times)

    def fail_look_ups(self, times: int = 1) -> None:
        """Let the next questions time out."""
        self._failing_look_ups += times

    def resends_unknown(self, account: str) -> bool:
        return account in self._resend_unknown

    def split(self, text: str) -> tuple[str, ...]:
        return split_text(text, self.size_limit, self.size_unit)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        self.attempts.append(outgoing)
        if size_of(outgoing.text, self.size_unit) > self.size_limit:
            return Refused("text too long")
        if self._faults:
            fault = self._faults.popleft()
            if fault.accepts:
                self._accept(outgoing)
            return await self._suffer(fault, timeout)
        return Sent(self._accept(outgoing))

    async def look_up(self, outgoing: Outgoing, timeout: timedelta) -> LookUp:
        if self._failing_look_ups:
            self._failing_look_ups -= 1
            return Unsure("timeout")
        if self.capability not in (Capability.LOOK_UP_DEFINITE, Capability.LOOK_UP_POSITIVE):
            return Unsure("no look-up")
        visible = self._clock() - self.settling_time
        if any(m.key == outgoing.key and m.at <= visible for m in self._ledger.messages()):
            return Found(self._provider_id(outgoing.key))
        return Absent()

    async def _suffer(self, fault: Fault, timeout: timedelta) -> Outcome:
        match fault.kind:
            case "drop":
                return Uncertain("connection reset")
            case "stall":
                await asyncio.sleep(timeout.total_seconds())
                return Uncertain("timeout")
            case "server_error":
                return Uncertain("HTTP 503")
            case "rate_limit":
                return NotSent("HTTP 429", fault.retry_after, fault.scope, rate_limited=True)
            case "unreachable":
                return NotSent("connection refused", fault.retry_after, fault.scope)
            case "refuse":
                return Refused("HTTP 400")

    def _accept(self, outgoing: Outgoing) -> str:
        if not self._recognizes(outgoing):
            message = Received(outgoing.key, outgoing.account, outgoing.address, outgoing.text, self._clock())
            self._ledger.add(message)
            self._keys_seen[(outgoing.account, outgoing.key)] = message
        return self._provider_id(outgoing.key)

    def _recognizes(self, outgoing: Outgoing) -> bool:
        if self.capability not in (Capability.IDEMPOTENT, Capability.IDEMPOTENT_WINDOW):
            return False
        seen = self._keys_seen.get((outgoing.account, outgoing.key))
        if seen is None and not isinstance(self._ledger, MemoryLedger):
            seen = next((m for m in self._ledger.messages() if m.key == outgoing.key), None)
        return seen is not None and (self.window is None or self._clock() - seen.at <= self.window)

    @staticmethod
    def _provider_id(key: str) -> str:
        return f"lab-{key}"
