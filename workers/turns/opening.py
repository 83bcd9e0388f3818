"""Opening the head of a lane: its event, and the snapshot of its first claim where it had one already.

A damaged or foreign row is its own run's misfortune, never that of the other claims in its batch.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from schemas.event import Event, decode_event
from schemas.reason import RefusedRecord
from schemas.run import RunStatus
from workers.memory import snapshot
from workers.turns.policy import Ended
from workers.turns.store import Head

log = structlog.get_logger(__name__)


class Chosen(NamedTuple):
    """A head to take; `past` is the snapshot of its first claim, None where it has none (yet)."""

    head: Head
    event: Event
    past: snapshot.Snapshot | None


def opened(head: Head) -> Chosen | Ended | None:
    """The head, opened; None where a newer worker froze it, to whom it is left; what is unreadable ends."""
    try:
        event = decode_event(head.event)
        if head.snapshot is None:
            return Chosen(head, event, None)
        return Chosen(head, event, snapshot.decode(head.snapshot, head.snapshot_digest or b""))
    except RefusedRecord as error:
        return Ended(RunStatus.FAILED, f"event unreadable: {error.reason}")
    except snapshot.NewerSnapshot as error:
        log.warning("turn.left_to_newer_worker", run_id=str(head.run_id), problem=error.problem)
        return None
    except snapshot.UnreadableSnapshot as error:
        return Ended(RunStatus.FAILED, f"snapshot unreadable: {error.problem}")
