"""Receipts of sends and look-ups, written in batches and fenced by attempt, session and state.

A receipt that matches nothing any more is late: it goes to the attempt log alone. In the transaction of a
receipt that ends a recalled reply the transcript follows, and a conversation that waited for it may go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

import structlog

from schemas.delivery import DeliveryState
from workers.delivery.journal import finish_replies
from workers.delivery.policy import CHUNK_FAILED, Hold, Verdict
from workers.delivery.store import Claimed
from workers.postgres.database import Connection, Database
from workers.postgres.group_commit import GroupCommit
from workers.postgres.rows import as_rows
from workers.postgres.sql import load
from workers.telemetry.metrics import Metrics
from workers.turns.lanes import hold_lanes

_HOLD_ADDRESSES = load(__package__, "hold_addresses")
_HOLD_SENDERS = load(__package__, "hold_senders")
_WRITE_RECEIPTS = load(__package__, "write_receipts")
_FAIL_LATER_CHUNKS = load(__package__, "fail_later_chunks")
_LONGEST_TEXT: Final = 500

log = structlog.get_logger(__name__)


class Receipt(NamedTuple):
    """What became of one claimed delivery. `outcome` is the word for the attempt log."""

    claimed: Claimed
    verdict: Verdict
    kind: Literal["send", "look_up"]
    outcome: str
    detail: str | None
    started_at: datetime | None


class Receipts:
    """Owns the queue of receipts; `close()` waits for those submitted. `lanes_ready` is called after a commit that let
    waiting lanes go on."""

    def __init__(
        self,
        db: Database,
        metrics: Metrics,
        *,
        lanes_ready: Callable[[], None] = lambda: None,
        reached: Callable[[str], None] = lambda point: None,
        max_batch: int = 256,
        flushers: int = 1,
        patience: timedelta | None = None,
    ) -> None:
        self._db = db
        self._metrics = metrics
        self._lanes_ready = lanes_ready
        self._reached = reached
        self._queue: GroupCommit[Receipt, bool] = GroupCommit(
            "receipts",
            self._apply,
            max_batch=max_batch,
            flushers=flushers,
            patience=patience,
            observe=metrics.batches("receipts"),
        )

    async def submit(self, receipt: Receipt) -> bool:
        """Wait for the commit; False where the receipt came late and moved nothing."""
        applied = await self._queue.submit(receipt)
        self._tell(receipt, applied)
        return applied

    async def close(self) -> None:
        await self._queue.close()

    async def _apply(self, receipts: Sequence[Receipt]) -> list[bool]:
        async with self._db.transaction() as tx:
            applied, chunks, released = await _write(tx, receipts)
            self._reached("receipt written")
        self._reached("receipt committed")
        for chunk in chunks:
            self._metrics.deliveries.labels(chunk[0], chunk[1]).inc()
        if released:
            self._lanes_ready()
        return applied

    def _tell(self, receipt: Receipt, applied: bool) -> None:
        claimed, verdict = receipt.claimed, receipt.verdict
        facts = {
            "delivery_id": str(claimed.id),
            "run_id": str(claimed.run_id),
            "channel": claimed.channel,
            "attempt": claimed.attempt,
        }
        if not applied:
            log.warning("delivery.late", outcome=receipt.outcome, **facts)
        elif verdict.state is DeliveryState.SENT:
            log.info("delivery.sent", **facts)
        elif verdict.state in (DeliveryState.FAILED, DeliveryState.UNKNOWN):
            log.error(f"delivery.{verdict.state}", reason=verdict.reason, **facts)
        else:
            wait = verdict.wait.total_seconds()
            log.warning(f"delivery.{verdict.state}", reason=verdict.reason, wait_seconds=wait, **facts)
        if applied and verdict.state.is_final:
            self._metrics.deliveries.labels(claimed.channel, verdict.state.value).inc()


async def _write(
    tx: Connection, receipts: Sequence[Receipt]
) -> tuple[list[bool], list[tuple[str, str]], int]:
    """One transaction's statements: lanes, addresses, deliveries, in that order, each by id.

    Returns which receipts counted, channel and state of chunks that ended with them, and how many lanes may go on.
    """
    if lanes := sorted({r.claimed.lane_id for r in receipts if _ends_recalled(r)}):
        await hold_lanes(tx, lanes)
    await _write_holds(tx, receipts)
    rows = await tx.fetch(_WRITE_RECEIPTS, as_rows(_RECEIPT, [_row(receipt) for receipt in receipts]))
    applied = [True] * len(receipts)
    for row in rows:
        applied[row["n"] - 1] = not row["late"]
    ended = [r for r, ok in zip(receipts, applied, strict=True) if ok and r.verdict.state.is_final]
    chunks: list[tuple[str, str]] = []
    if failed := [r.claimed.reply_key for r in ended if r.verdict.state is DeliveryState.FAILED]:
        rows = await tx.fetch(_FAIL_LATER_CHUNKS, failed, CHUNK_FAILED)
        chunks = [(row["channel"], row["state"]) for row in rows]
    recalled = [r.claimed for r in ended if r.claimed.recalled]
    released = await finish_replies(tx, [c.reply_key for c in recalled], [c.lane_id for c in recalled])
    return applied, chunks, released


_RECEIPT = (
    *(
        "id",
        "attempt",
        "session_id",
        "from_state",
        "state",
        "reason",
        "wait",
        "failures",
        "provider_id",
        "clears",
    ),
    *("possible_duplicate", "kind", "outcome", "detail", "started_at"),
)


def _row(receipt: Receipt) -> tuple[object, ...]:
    claimed, verdict = receipt.claimed, receipt.verdict
    return (
        claimed.id,
        claimed.attempt,
        claimed.session_id,
        "sending" if receipt.kind == "send" else "uncertain",
        verdict.state.value,
        _short(verdict.reason),
        verdict.wait,
        verdict.failures,
        _short(verdict.provider_id),
        verdict.clears_suspicion,
        verdict.possible_duplicate,
        receipt.kind,
        receipt.outcome,
        _short(receipt.detail),
        receipt.started_at,
    )


async def _write_holds(tx: Connection, receipts: Sequence[Receipt]) -> None:
    holds: list[tuple[Claimed, Hold]] = [
        (receipt.claimed, receipt.verdict.hold) for receipt in receipts if receipt.verdict.hold is not None
    ]
    addresses = [(claimed.address_id, hold.wait) for claimed, hold in holds if hold.scope == "address"]
    if addresses:
        await tx.execute(_HOLD_ADDRESSES, *map(list, zip(*addresses, strict=True)))
    senders = [
        (claimed.channel, claimed.account if hold.scope == "account" else "", hold.wait, _short(hold.reason))
        for claimed, hold in holds
        if hold.scope != "address"
    ]
    if senders:
        await tx.execute(_HOLD_SENDERS, *map(list, zip(*senders, strict=True)))


def _ends_recalled(receipt: Receipt) -> bool:
    return receipt.claimed.recalled and receipt.verdict.state.is_final


def _short(text: str | None) -> str | None:
    return text if text is None else text[:_LONGEST_TEXT].replace("\x00", "\ufffd")
