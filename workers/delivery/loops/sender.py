"""Claims the heads of addresses, sends them, writes the receipts, goes on with the next head of the same
address.

    claim (one transaction) -> send (no transaction, before the claim's deadline) -> receipt (batched, fenced)

At most one send is under way at an address; addresses wait for nobody but themselves. Killed anywhere, it
leaves `sending` rows that the reconciler finds; a claim that outlived its deadline is given back unsent.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import structlog

from schemas.delivery import DeliveryState
from workers.channels.port import Channel, NotSent, Outcome, Refused, Sent, Uncertain
from workers.delivery import store
from workers.delivery.policy import (
    DEFAULT_RETRIES,
    HEAD_HOLD,
    Retries,
    Verdict,
    decide_receipt,
    may_send_suspect,
)
from workers.delivery.receipts import Receipt, Receipts
from workers.delivery.store import Claimed
from workers.postgres.database import Database
from workers.postgres.failures import is_retryable
from workers.postgres.group_commit import GATHERING_TURNS
from workers.telemetry.metrics import Metrics
from workers.telemetry.pace import Pace

QUICK_SEND_SECONDS: Final = 0.05
QUICK_WIDTH: Final = 4
_BUSY_SECONDS: Final = 0.01
_OUTAGE_SECONDS: Final = 0.5
_EARLY: Final = timedelta(milliseconds=20)
_OUTCOMES: Final[dict[type[Outcome], str]] = {
    Sent: "sent",
    NotSent: "not_sent",
    Refused: "refused",
    Uncertain: "uncertain",
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SendLimits:
    """A request starts within `lease_for` less `margin` of its claim, or not at all."""

    concurrency: int = 64
    waiting_addresses: int = 50_000
    lease_for: timedelta = timedelta(seconds=15)
    margin: timedelta = timedelta(seconds=3)


DEFAULT_LIMITS: Final = SendLimits()


@dataclass(frozen=True, slots=True)
class _Claim:
    """`at` is the monotonic time before the claim: an upper bound of its age by this process's own clock."""

    deliveries: list[Claimed]
    busy: list[int]
    at: float


class Sender:
    """One sender of one worker session. `run()` is the loop; `run_once()` the same work for given
    addresses."""

    def __init__(
        self,
        db: Database,
        channels: Mapping[str, Channel],
        session_id: UUID,
        receipts: Receipts,
        metrics: Metrics,
        *,
        limits: SendLimits = DEFAULT_LIMITS,
        retries: Retries = DEFAULT_RETRIES,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        reached: Callable[[str], None] = lambda point: None,
    ) -> None:
        self._db = db
        self._channels = channels
        self._names = sorted(channels)
        self._session_id = session_id
        self._receipts = receipts
        self._metrics = metrics
        self._limits = limits
        self._retries = retries
        self._monotonic = monotonic
        self._jitter = jitter
        self._reached = reached
        self._offered: dict[int, None] = {}
        self._sending: set[int] = set()
        self._again: set[int] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._stopping = False
        self._pace = Pace()
        self._requests = asyncio.Semaphore(limits.concurrency)

    @property
    def waiting(self) -> int:
        """Addresses that were offered and not yet claimed."""
        return len(self._offered)

    def offer(self, address_ids: Iterable[int]) -> None:
        """Say that there may be something to send; forgotten beyond `waiting_addresses` (the reconciler
        looks)."""
        for address_id in address_ids:
            if address_id in self._sending:
                self._again.add(address_id)
            elif len(self._offered) < self._limits.waiting_addresses:
                self._offered[address_id] = None
        self._changed.set()

    async def room(self) -> None:
        """Return once less than half of `waiting_addresses` wait: back-pressure for whoever offers."""
        while len(self._offered) * 2 > self._limits.waiting_addresses and not self._stopping:
            self._taken.clear()
            await self._taken.wait()

    def stop(self) -> None:
        """Claim nothing more; `run()` returns when what is under way has its receipt."""
        self._stopping = True
        self._changed.set()
        self._taken.set()

    async def run(self) -> None:
        """Send what is offered until `stop()`. Raises SessionGone when the session was taken over."""
        try:
            async with asyncio.TaskGroup() as sends:
                while not self._stopping:
                    self._changed.clear()
                    for _ in range(GATHERING_TURNS):
                        await asyncio.sleep(0)
                    batch = self._take(self._free())
                    if batch:
                        await self._start(batch, sends)
                    else:
                        await self._changed.wait()
        finally:
            for timer in self._timers:
                timer.cancel()

    async def run_once(self, address_ids: Sequence[int]) -> int:
        """Send what is due at these addresses, in batches, until nothing is; returns the number of sends."""
        waiting, sends = list(dict.fromkeys(address_ids)), 0
        while waiting and not self._stopping:
            batch, waiting = waiting[: self._limits.concurrency], waiting[self._limits.concurrency :]
            claim = await self._claim(batch)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._deliver(each, claim.at)) for each in claim.deliveries]
            sends += len(tasks)
            done = zip(claim.deliveries, tasks, strict=True)
            waiting += [each.address_id for each, task in done if each.more and task.result().state.is_final]
            if claim.busy:
                await asyncio.sleep(_BUSY_SECONDS)
                waiting += claim.busy
        return sends

    def _free(self) -> int:
        """How many to claim: at most half of what may be under way, so that one half sends while another claims.

        Where sends take milliseconds, most of their time goes to claims and receipts, so more may be under way;
        requests are bounded by `concurrency` all the same.
        """
        width = QUICK_WIDTH if self._pace.is_quicker_than(QUICK_SEND_SECONDS) else 1
        most = self._limits.concurrency * width
        return min(most - len(self._sending), max(1, most // 2))

    def _take(self, at_most: int) -> list[int]:
        batch = [address_id for address_id, _ in zip(self._offered, range(max(0, at_most)), strict=False)]
        for address_id in batch:
            del self._offered[address_id]
        self._taken.set()
        return batch

    async def _start(self, batch: list[int], sends: asyncio.TaskGroup) -> None:
        """Claim a batch and send it; addresses are back on offer where the claim could not be tried or was
        busy."""
        self._sending.update(batch)
        try:
            claim = await self._claim(batch)
        except Exception as error:
            if not is_retryable(error):
                raise
            log.warning("delivery.claim_failed", error=type(error).__name__)
            self._sending.difference_update(batch)
            self._offer_later(batch, timedelta(seconds=_OUTAGE_SECONDS))
            return
        claimed = {each.address_id for each in claim.deliveries}
        self._release([address_id for address_id in batch if address_id not in claimed])
        self._offer_later(claim.busy, timedelta(seconds=_BUSY_SECONDS))
        for each in claim.deliveries:
            sends.create_task(self._deliver_and_go_on(each, claim.at))

    async def _deliver_and_go_on(self, claimed: Claimed, claim_at: float) -> None:
        try:
            verdict = await self._deliver(claimed, claim_at)
        except Exception as error:
            log.exception("delivery.receipt_lost", delivery_id=str(claimed.id), error=type(error).__name__)
            self._release([claimed.address_id])
            return
        if claimed.more and verdict.state.is_final:
            self._again.add(claimed.address_id)
        elif verdict.state is DeliveryState.PENDING:
            self._offer_later([claimed.address_id], verdict.wait + _EARLY)
        self._release([claimed.address_id])

    def _release(self, address_ids: Iterable[int]) -> None:
        ids = list(address_ids)
        self._sending.difference_update(ids)
        again = self._again.intersection(ids)
        self._again -= again
        self.offer(again)

    def _offer_later(self, address_ids: Sequence[int], wait: timedelta) -> None:
        if not address_ids:
            return

        def fire() -> None:
            self._timers.discard(timer)
            self.offer(address_ids)

        timer = asyncio.get_running_loop().call_later(wait.total_seconds(), fire)
        self._timers.add(timer)

    async def _claim(self, address_ids: Sequence[int]) -> _Claim:
        """Raises SessionGone; a unique violation (somebody is sending there) leaves that address out."""
        at = self._monotonic()
        try:
            async with self._db.transaction() as tx:
                addresses = await store.lock_addresses(tx, self._session_id, address_ids, self._names)
                deliveries: list[Claimed] = []
                if addresses.locked:
                    deliveries = await store.claim_heads(tx, self._session_id, addresses.locked, HEAD_HOLD)
                self._reached("claim written")
        except asyncpg.UniqueViolationError:
            if len(address_ids) == 1:
                return _Claim([], [], at)
            half = len(address_ids) // 2
            first, second = await self._claim(address_ids[:half]), await self._claim(address_ids[half:])
            return _Claim(first.deliveries + second.deliveries, first.busy + second.busy, first.at)
        self._reached("claim committed")
        return _Claim(deliveries, addresses.busy, at)

    async def _deliver(self, claimed: Claimed, claim_at: float) -> Verdict:
        """Send one claimed delivery and write its receipt; a late receipt's verdict says what was meant."""
        async with self._requests:
            started_at, started = datetime.now(UTC), time.perf_counter()
            outcome = await self._send(claimed, claim_at)
            seconds = time.perf_counter() - started
        word = _OUTCOMES[type(outcome)]
        self._pace.note(seconds)
        self._metrics.attempts.labels(claimed.channel, word).inc()
        self._metrics.send_seconds.labels(claimed.channel).observe(seconds)
        self._reached("sent")
        verdict = decide_receipt(
            outcome,
            failures=claimed.failures,
            age=claimed.claimed_at - claimed.first_sent_at,
            suspect=claimed.suspect,
            jitter=self._jitter(),
            retries=self._retries,
        )
        detail = None if isinstance(outcome, Sent) else outcome.reason
        await self._receipts.submit(Receipt(claimed, verdict, "send", word, detail, started_at))
        return verdict

    async def _send(self, claimed: Claimed, claim_at: float) -> Outcome:
        channel = self._channels[claimed.channel]
        age = timedelta(seconds=self._monotonic() - claim_at)
        if age >= self._limits.lease_for - self._limits.margin:
            return NotSent("claim expired", rate_limited=True)
        if claimed.suspect and not claimed.possible_duplicate:
            now = claimed.claimed_at + age
            if not may_send_suspect(channel.capability, channel.window, claimed.first_sent_at, now):
                return Uncertain("idempotency window passed")
        try:
            async with asyncio.timeout(channel.transport_timeout.total_seconds()):
                return await channel.send(claimed.outgoing, channel.transport_timeout)
        except TimeoutError:
            return Uncertain("timeout")
        except Exception as error:
            log.error("delivery.channel_raised", channel=channel.name, error=type(error).__name__)
            return Uncertain(type(error).__name__)
