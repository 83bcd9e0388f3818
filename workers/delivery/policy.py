"""What becomes of a delivery after each try, decided from values.

    PENDING -> SENDING -> SENT | FAILED | UNCERTAIN, or PENDING again when certainly not sent
    UNCERTAIN -> SENT | PENDING | FAILED | UNKNOWN        (the reconciler, by the channel's capability)

A delivery that was once uncertain stays *suspect* until a definite look-up clears it: whatever ends it
other than `sent` then ends it `unknown`, since an earlier attempt may have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple, assert_never

from schemas.delivery import DeliveryState
from workers.channels.port import (
    Absent,
    Capability,
    Found,
    LookUp,
    NotSent,
    Outcome,
    Refused,
    Scope,
    Sent,
    Uncertain,
    Unsure,
)

CANCELLED: Final = "cancelled"
ABANDONED: Final = "abandoned"
SESSION_ENDED: Final = "session ended"
CHUNK_FAILED: Final = "earlier chunk failed"
EXHAUSTED: Final = "retries exhausted"

HEAD_HOLD: Final = timedelta(seconds=30)
"""How long an uncertain head keeps the next reply of its address waiting."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Bounds of trying again: `max_failures` tries that count, within `max_age` of the first attempt."""

    base: timedelta = timedelta(seconds=1)
    longest: timedelta = timedelta(minutes=5)
    max_failures: int = 8
    max_age: timedelta = timedelta(hours=24)
    longest_retry_after: timedelta = timedelta(hours=1)

    def backoff(self, failures: int, jitter: float) -> timedelta:
        """The wait after the `failures`-th failed try; `jitter` in [0, 1) shortens it by up to a half."""
        doubled = self.base * 2.0 ** min(max(failures - 1, 0), 30)
        return min(doubled, self.longest) * (1.0 - jitter / 2.0)

    def exhausted(self, failures: int, age: timedelta) -> bool:
        """True where no further try may follow."""
        return failures >= self.max_failures or age >= self.max_age


DEFAULT_RETRIES: Final = Retries()


@dataclass(frozen=True, slots=True)
class Hold:
    """A wait that the channel asked for, for more than the one delivery."""

    scope: Scope
    wait: timedelta
    reason: str


class Verdict(NamedTuple):
    """The next state of a delivery; `wait` counts from the moment it is written."""

    state: DeliveryState
    reason: str | None = None
    wait: timedelta = timedelta(0)
    failures: int = 0
    """How many are added to the count."""
    hold: Hold | None = None
    provider_id: str | None = None
    clears_suspicion: bool = False
    possible_duplicate: bool = False


def decide_receipt(
    outcome: Outcome, *, failures: int, age: timedelta, suspect: bool, jitter: float, retries: Retries
) -> Verdict:
    """The verdict on one send; `failures` were counted before it, `age` runs from the first attempt."""
    lost = DeliveryState.UNKNOWN if suspect else DeliveryState.FAILED
    match outcome:
        case Sent(provider_id):
            return Verdict(DeliveryState.SENT, provider_id=provider_id)
        case Refused(reason):
            return Verdict(lost, reason)
        case Uncertain(reason):
            wait = retries.backoff(failures + 1, jitter) if failures else timedelta(0)
            return Verdict(DeliveryState.UNCERTAIN, _as_told(reason), wait, failures=1)
        case NotSent():
            counted = 0 if outcome.rate_limited else 1
            if retries.exhausted(failures + counted, age):
                return Verdict(lost, EXHAUSTED, failures=counted, hold=_hold(outcome, retries))
            wait = _wait(outcome, failures, jitter, retries)
            return Verdict(
                DeliveryState.PENDING,
                _as_told(outcome.reason),
                wait,
                failures=counted,
                hold=_hold(outcome, retries),
            )
        case never:
            assert_never(never)


def _as_told(reason: str) -> str:
    """A channel's reason, never one of the words that steer the reconciler."""
    return f"channel: {reason}" if reason in (CANCELLED, SESSION_ENDED) else reason


def _wait(outcome: NotSent, failures: int, jitter: float, retries: Retries) -> timedelta:
    if outcome.retry_after is not None:
        return _capped(outcome.retry_after, retries)
    return retries.backoff(failures + 1, jitter)


def _hold(outcome: NotSent, retries: Retries) -> Hold | None:
    if outcome.retry_after is None:
        return None
    return Hold(outcome.scope, _capped(outcome.retry_after, retries), outcome.reason)


def _capped(wait: timedelta, retries: Retries) -> timedelta:
    return max(timedelta(0), min(wait, retries.longest_retry_after))


def may_send_suspect(
    capability: Capability, window: timedelta | None, first_sent_at: datetime, now: datetime
) -> bool:
    """Whether the same key may go out again although an earlier attempt may have arrived."""
    match capability:
        case Capability.IDEMPOTENT:
            return True
        case Capability.IDEMPOTENT_WINDOW:
            return window is not None and now < first_sent_at + window - margin_of(window)
        case _:
            return False


def margin_of(window: timedelta) -> timedelta:
    """How much of an idempotency window is left unused: a tenth, at most half a minute."""
    return min(window / 10, timedelta(seconds=30))


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is known of an uncertain delivery; times are the database's."""

    capability: Capability
    window: timedelta | None
    settling: timedelta
    transport_timeout: timedelta
    lease_for: timedelta
    first_sent_at: datetime
    claimed_at: datetime
    failures: int
    reason: str | None
    resend_unknown: bool

    @property
    def cancelled(self) -> bool:
        """Its run was cancelled, reset or deleted: it may be found out about, never sent again."""
        return self.reason == CANCELLED

    @property
    def quiet_at(self) -> datetime:
        """From here on no request of the last claim can start or be under way."""
        return self.claimed_at + self.lease_for + self.transport_timeout

    @property
    def may_still_run(self) -> bool:
        """True where the sender of the last claim has not said that it is done."""
        return self.reason in (CANCELLED, SESSION_ENDED)


@dataclass(frozen=True, slots=True)
class ResendSameKey:
    """Pending again, under the same key."""

    certainly_absent: bool = False
    possible_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class AskChannel:
    """Look it up first."""


@dataclass(frozen=True, slots=True)
class MarkSent:
    provider_id: str | None


@dataclass(frozen=True, slots=True)
class MarkFailed:
    """Certainly not sent, and no try is left."""

    reason: str


@dataclass(frozen=True, slots=True)
class MarkUnknown:
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Decide again at `until`."""

    until: datetime


Decision = ResendSameKey | AskChannel | MarkSent | MarkFailed | MarkUnknown | Wait


def decide_uncertain(doubt: Doubt, lookup: LookUp | None, now: datetime, retries: Retries) -> Decision:
    """What the reconciler does; `lookup` was asked at `now` or later, None where nobody asked yet."""
    if isinstance(lookup, Found):
        return MarkSent(lookup.provider_id)
    exhausted = retries.exhausted(doubt.failures, now - doubt.first_sent_at)
    match doubt.capability:
        case Capability.IDEMPOTENT | Capability.IDEMPOTENT_WINDOW:
            return _decide_idempotent(doubt, exhausted, now)
        case Capability.LOOK_UP_DEFINITE | Capability.LOOK_UP_POSITIVE:
            return _decide_by_look_up(doubt, lookup, exhausted, now, retries)
        case Capability.NONE:
            return _decide_blind(doubt, exhausted, now)
        case never:
            assert_never(never)


def _decide_idempotent(doubt: Doubt, exhausted: bool, now: datetime) -> Decision:
    if doubt.cancelled:
        return _unknown_once_quiet(doubt, CANCELLED, now)
    if exhausted:
        return MarkUnknown(EXHAUSTED)
    if may_send_suspect(doubt.capability, doubt.window, doubt.first_sent_at, now):
        return ResendSameKey()
    return _unknown_once_quiet(doubt, "idempotency window passed", now)


def _decide_by_look_up(
    doubt: Doubt, lookup: LookUp | None, exhausted: bool, now: datetime, retries: Retries
) -> Decision:
    counts_from = doubt.quiet_at + doubt.settling
    match lookup:
        case None:
            return AskChannel()
        case Unsure():
            if now - doubt.first_sent_at >= retries.max_age:
                return MarkUnknown(CANCELLED if doubt.cancelled else "look-up failed")
            return Wait(now + _unsure_wait(now - doubt.claimed_at, retries))
        case Absent() if now < counts_from:
            return Wait(counts_from)
        case _ if doubt.cancelled:
            return MarkUnknown(CANCELLED)
        case _ if doubt.capability is Capability.LOOK_UP_POSITIVE:
            return MarkUnknown("not found")
        case _ if exhausted:
            return MarkFailed(EXHAUSTED)
        case _:
            return ResendSameKey(certainly_absent=True)


def _unsure_wait(doubted_for: timedelta, retries: Retries) -> timedelta:
    """Half as long again as it has taken so far: doubling without a counter."""
    return min(max(doubted_for / 2, retries.base), retries.longest)


def _decide_blind(doubt: Doubt, exhausted: bool, now: datetime) -> Decision:
    if doubt.resend_unknown and not doubt.cancelled and not exhausted:
        return ResendSameKey(possible_duplicate=True)
    reason = CANCELLED if doubt.cancelled else "the channel cannot be asked"
    return _unknown_once_quiet(doubt, reason, now)


def _unknown_once_quiet(doubt: Doubt, reason: str, now: datetime) -> Decision:
    if doubt.may_still_run and now < doubt.quiet_at:
        return Wait(doubt.quiet_at)
    return MarkUnknown(reason)
