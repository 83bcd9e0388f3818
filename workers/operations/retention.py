"""How long every table keeps its rows. What is open is never removed, whatever its age.

reservations                                     idempotency_ttl, and until their run has ended
runs, run_steps, deliveries, delivery_attempts,
lanes of runs and keys                           runs, and until the reservation is gone
note_operations                                  until their run has ended
items                                            the app's Limits.retention and max_stored_items, or conversations
conversations, their lanes                       conversations (None: for ever), once nothing of it is left; a tombstone
                                                 also until the reservations from before it are gone
notes                                            their own expiry, or as long as their conversation
mailbox, audit, addresses                        settings of those names
worker_sessions, send_holds                      sessions
ready, turns, pauses, leases                     hold what is waiting, active or in force; nothing ages in them
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

ADDRESS_MARGIN: Final = timedelta(days=9)
"""An address is noted as used once a week, by its day: it outlives the deliveries to it by more than that."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Ages at which rows may go; `conversations` of None keeps conversations until somebody deletes them."""

    runs: timedelta = timedelta(days=30)
    mailbox: timedelta = timedelta(days=30)
    addresses: timedelta = timedelta(days=90)
    audit: timedelta = timedelta(days=400)
    sessions: timedelta = timedelta(days=7)
    conversations: timedelta | None = None

    def problems(self, idempotency_ttl: timedelta) -> list[str]:
        """What does not fit together, one line each."""
        found = []
        if self.addresses < self.runs + ADDRESS_MARGIN:
            found.append(
                f"PARLEY_KEEP_ADDRESSES is {self.addresses}, and must be at least {self.runs + ADDRESS_MARGIN}: "
                "PARLEY_KEEP_RUNS plus nine days"
            )
        least = max(self.runs, idempotency_ttl)
        if self.conversations is not None and self.conversations < least:
            found.append(
                f"PARLEY_KEEP_CONVERSATIONS is {self.conversations}, and must be at least {least}: the longer of "
                "PARLEY_KEEP_RUNS and PARLEY_IDEMPOTENCY_TTL"
            )
        return found


SETTINGS: Final[Mapping[str, str]] = {
    "reservations": "PARLEY_IDEMPOTENCY_TTL",
    "runs": "PARLEY_KEEP_RUNS",
    "run_steps": "PARLEY_KEEP_RUNS",
    "deliveries": "PARLEY_KEEP_RUNS",
    "delivery_attempts": "PARLEY_KEEP_RUNS",
    "note_operations": "their run's end",
    "lanes": "PARLEY_KEEP_RUNS",
    "items": "Limits.retention, PARLEY_KEEP_CONVERSATIONS",
    "conversations": "PARLEY_KEEP_CONVERSATIONS",
    "notes": "their own expiry",
    "mailbox": "PARLEY_KEEP_MAILBOX",
    "addresses": "PARLEY_KEEP_ADDRESSES",
    "audit": "PARLEY_KEEP_AUDIT",
    "worker_sessions": "PARLEY_KEEP_SESSIONS",
    "send_holds": "PARLEY_KEEP_SESSIONS",
}
"""Which setting decides about which table."""

UNAGEING: Final = frozenset({"ready", "turns", "pauses", "leases"})
"""Tables of what is waiting, active or in force: a row leaves with what it stands for."""
