"""Finds what nobody finishes and brings it to an end: overdue, abandoned and uncertain deliveries.

Overdue pending ones (their hint was lost, or their sender died) are claimed and sent from here, never
published again. Sends of dead sessions become uncertain. Uncertain ones end, or go again, as the channel's
capability allows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never
from uuid import UUID

import structlog

from schemas.delivery import DeliveryState
from workers.channels.port import Absent, Channel, Found, LookUp, Unsure
from workers.delivery import store
from workers.delivery.loops.sender import DEFAULT_LIMITS, Sender, SendLimits
from workers.delivery.policy import (
    DEFAULT_RETRIES,
    HEAD_HOLD,
    SESSION_ENDED,
    AskChannel,
    Decision,
    Doubt,
    MarkFailed,
    MarkSent,
    MarkUnknown,
    ResendSameKey,
    Retries,
    Verdict,
    Wait,
    decide_uncertain,
)
from workers.delivery.receipts import Receipt, Receipts
from workers.delivery.store import Leased
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.telemetry.metrics import Metrics
from workers.turns.store import hold_session

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcileLimits:
    """Batches and periods; an overdue delivery is found within `overdue_by` and one round of `every`."""

    every: timedelta = timedelta(seconds=1)
    overdue_by: timedelta = timedelta(seconds=2)
    batch: int = 200
    addresses_walked: int = 2000
    addresses_a_round: int = 20_000
    grace: timedelta = timedelta(seconds=60)
    """Past lease and transport timeout, after which a living session's send counts as abandoned."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """How many doubts were decided, and the addresses of those that are pending again."""

    decided: int
    resend: list[int]


DEFAULT_ROUNDS: Final = ReconcileLimits()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one round did: sends taken from the dead, doubts decided, overdue addresses handed to the
    sender."""

    abandoned: int
    decided: int
    overdue: int


class Reconciler:
    """Any number may run at once: rows are leased by session and fenced by attempt."""

    def __init__(
        self,
        db: Database,
        channels: Mapping[str, Channel],
        session_id: UUID,
        sender: Sender,
        receipts: Receipts,
        metrics: Metrics,
        *,
        limits: ReconcileLimits = DEFAULT_ROUNDS,
        sending: SendLimits = DEFAULT_LIMITS,
        retries: Retries = DEFAULT_RETRIES,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._db = db
        self._channels = channels
        self._names = sorted(channels)
        self._session_id = session_id
        self._sender = sender
        self._receipts = receipts
        self._metrics = metrics
        self._limits = limits
        self._sending = sending
        self._retries = retries
        self._reached = reached
        longest = max((c.transport_timeout for c in channels.values()), default=timedelta(0))
        self._look_up_lease = longest + timedelta(seconds=10)
        self._longest_send = sending.lease_for + longest + limits.grace
        self._walked_to = -1
        self._stopping = asyncio.Event()

    async def run_once(self) -> Reconciled:
        """One round of everything, sends included."""
        abandoned = await self.take_from_the_dead()
        resolved = await self.resolve_uncertain()
        overdue = await self.find_overdue()
        await self._sender.run_once(resolved.resend + overdue)
        return Reconciled(abandoned, resolved.decided, len(overdue))

    async def run(self) -> None:
        """Rounds until `stop()`, beside a running sender; a slow look-up delays no overdue delivery."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._repeat(self.take_from_the_dead))
            loops.create_task(self._repeat(self._resolve_and_offer))
            loops.create_task(self._repeat(self._offer_overdue))

    def stop(self) -> None:
        """Begin no further round."""
        self._stopping.set()

    async def take_from_the_dead(self) -> int:
        """Make abandoned sends uncertain; returns how many."""
        async with self._db.transaction() as tx:
            rows = await store.mark_abandoned_sends(tx, self._limits.batch, self._longest_send, SESSION_ENDED)
        for row in rows:
            log.warning(
                "delivery.uncertain",
                delivery_id=str(row["id"]),
                run_id=str(row["run_id"]),
                reason=row["reason"],
            )
        return len(rows)

    async def resolve_uncertain(self) -> Resolved:
        """Decide about a batch of uncertain deliveries, asking their channels; sends nothing."""
        async with self._db.transaction() as tx:
            await hold_session(tx, self._session_id)
            leased = await store.lease_uncertain(
                tx, self._session_id, self._limits.batch, self._look_up_lease, self._names
            )
        self._reached("uncertain leased")
        async with asyncio.TaskGroup() as group:
            room = asyncio.Semaphore(self._sending.concurrency)
            tasks = [group.create_task(self._resolve(each, room)) for each in leased]
        addresses = [task.result() for task in tasks]
        return Resolved(len(leased), [address for address in addresses if address is not None])

    async def find_overdue(self) -> list[int]:
        """Addresses whose head should have been sent by now; a round walks on where the last one stopped."""
        overdue: list[int] = []
        walked = 0
        while walked < self._limits.addresses_a_round and len(overdue) < self._limits.batch:
            async with self._db.transaction() as tx:
                page = await store.walk_overdue(
                    tx,
                    self._walked_to,
                    self._limits.addresses_walked,
                    self._limits.overdue_by,
                    self._names,
                    HEAD_HOLD,
                )
            overdue += [each.address_id for each in page if each.overdue]
            walked += len(page)
            if len(page) < self._limits.addresses_walked:
                self._walked_to = -1
                break
            self._walked_to = page[-1].address_id
        return overdue

    async def _resolve_and_offer(self) -> int:
        resolved = await self.resolve_uncertain()
        self._sender.offer(resolved.resend)
        return resolved.decided

    async def _offer_overdue(self) -> int:
        overdue = await self.find_overdue()
        self._sender.offer(overdue)
        return len(overdue)

    async def _repeat(self, work: Callable[[], Awaitable[int]]) -> None:
        """A full batch is followed at once; an outage waits for the next round."""
        while not self._stopping.is_set():
            found = 0
            try:
                found = await work()
            except Exception as error:
                if not is_retryable(error):
                    raise
                log.warning("reconcile.failed", error=type(error).__name__)
            if found < self._limits.batch:
                await self._pause()

    async def _pause(self) -> None:
        seconds = self._limits.every.total_seconds() * random.uniform(0.7, 1.0)
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _resolve(self, leased: Leased, room: asyncio.Semaphore) -> int | None:
        """The address where the delivery is to be sent again, if it is."""
        started_at = datetime.now(UTC)
        doubt, lookup = self._doubt(leased), leased.known
        asked: LookUp | None = None
        decision = decide_uncertain(doubt, lookup, leased.now, self._retries)
        if isinstance(decision, AskChannel):
            async with room:
                asked = await self._ask(leased)
            self._reached("asked")
            decision = decide_uncertain(doubt, asked, leased.now, self._retries)
        verdict = _verdict(decision, leased.now)
        outcome, detail = _told(asked or lookup, decision)
        try:
            applied = await self._receipts.submit(
                Receipt(leased.delivery, verdict, "look_up", outcome, detail, started_at)
            )
        except Exception as error:
            log.exception(
                "delivery.receipt_lost", delivery_id=str(leased.delivery.id), error=type(error).__name__
            )
            return None
        return leased.delivery.address_id if applied and verdict.state is DeliveryState.PENDING else None

    async def _ask(self, leased: Leased) -> LookUp:
        channel = self._channels[leased.delivery.channel]
        try:
            async with asyncio.timeout(channel.transport_timeout.total_seconds()):
                return await channel.look_up(leased.delivery.outgoing, channel.transport_timeout)
        except TimeoutError:
            return Unsure("timeout")
        except Exception as error:
            log.error("delivery.channel_raised", channel=channel.name, error=type(error).__name__)
            return Unsure(type(error).__name__)

    def _doubt(self, leased: Leased) -> Doubt:
        delivery = leased.delivery
        channel = self._channels[delivery.channel]
        return Doubt(
            capability=channel.capability,
            window=channel.window,
            settling=channel.settling_time,
            transport_timeout=channel.transport_timeout,
            lease_for=self._sending.lease_for,
            first_sent_at=delivery.first_sent_at,
            claimed_at=delivery.claimed_at,
            failures=delivery.failures,
            reason=delivery.reason,
            resend_unknown=channel.resends_unknown(delivery.account),
        )


def _verdict(decision: Decision, now: datetime) -> Verdict:
    match decision:
        case MarkSent(provider_id):
            return Verdict(DeliveryState.SENT, provider_id=provider_id)
        case MarkFailed(reason):
            return Verdict(DeliveryState.FAILED, reason)
        case MarkUnknown(reason):
            return Verdict(DeliveryState.UNKNOWN, reason)
        case ResendSameKey():
            return Verdict(
                DeliveryState.PENDING,
                clears_suspicion=decision.certainly_absent,
                possible_duplicate=decision.possible_duplicate,
            )
        case Wait(until):
            return Verdict(DeliveryState.UNCERTAIN, wait=until - now)
        case AskChannel():
            raise AssertionError("a look-up was made and asked for again")
        case never:
            assert_never(never)


def _told(lookup: LookUp | None, decision: Decision) -> tuple[str, str | None]:
    """Outcome and detail for the attempt log."""
    match lookup:
        case Found():
            return "found", None
        case Absent():
            return "absent", type(decision).__name__
        case Unsure(reason):
            return "unsure", reason
        case None:
            return "decided", type(decision).__name__
        case never:
            assert_never(never)
