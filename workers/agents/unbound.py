"""Runs that are bound to no conversation: those of agents without memory, hand-offs, and plain dispatches.

Whatever a payload says, such a run recalls nothing and records nothing. A hand-off stays at the place of the event
that it comes from and may reply there, unrecalled; a dispatch has no place to reply to and can only `emit`.
"""

import re
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from schemas.event import MAX_EVENT_BYTES, Event, TooLarge, decode_event
from schemas.identity import DIRECT, Identity, Principal, escape
from schemas.text import clean
from workers.admission.policy import Candidate, LaneKind
from workers.agents.agent import Agent
from workers.agents.errors import TooManyHandOffs

RESERVED: Final = "parley:"
"""No channel of an app has a name that begins so."""
DISPATCH_CHANNEL: Final = f"{RESERVED}dispatch"
MAX_HAND_OFFS: Final = 16
"""How long a chain of hand-offs may be."""

_HANDED_OFF: Final = re.compile(r"handoff:(\d{1,2}):")


def unbound_candidate(agent: Agent, event: Event, run_id: UUID, traceparent: str | None) -> Candidate:
    """The unbound run of `agent` for `event`; raises what the agent's `concurrency_key` raises.

    It is serialized by the agent's concurrency key if there is one, else by nothing but itself.
    """
    if agent.concurrency_key is not None:
        lane = _lane_key("key", agent.name, agent.concurrency_key(event))
        return candidate_in("key", lane, None, agent, event, run_id, traceparent)
    lane = _lane_key("run", agent.name, event.channel, event.account, event.event_id)
    return candidate_in("run", lane, None, agent, event, run_id, traceparent)


def candidate_in(
    lane_kind: LaneKind,
    lane_key: bytes,
    identity: Identity | None,
    agent: Agent,
    event: Event,
    run_id: UUID,
    traceparent: str | None,
) -> Candidate:
    """The run of `agent` for `event` in this lane; `identity` is given for a conversation."""
    hash_version, payload_hash = event.payload_hash()
    return Candidate(
        run_id=run_id,
        agent=agent.name,
        lane_kind=lane_kind,
        lane_key=lane_key,
        identity=identity,
        channel=event.channel,
        account=event.account,
        event_id=event.event_id,
        message_id=event.message_id,
        payload_hash=payload_hash,
        hash_version=hash_version,
        event=event.raw,
        traceparent=traceparent,
    )


def handed_off(source: Event, run_id: UUID, text: str | None, payload: Any) -> Event:
    """What the run `run_id` is handed: the place, sender and files of `source`. Raises TooLarge, TooManyHandOffs."""
    earlier = _HANDED_OFF.match(source.event_id) if source.kind == "handoff" else None
    hand_offs = 1 + (int(earlier[1]) if earlier else 0)
    if hand_offs > MAX_HAND_OFFS:
        raise TooManyHandOffs(MAX_HAND_OFFS)
    changed = {
        "event_id": f"handoff:{hand_offs}:{run_id}",
        "message_id": None,
        "kind": "handoff",
        "text": source.text if text is None else clean(text),
        "payload": payload,
        "payload_base64": None,
    }
    return as_read(source.model_copy(update=changed))


def dispatched(event_id: str, text: str, payload: Any, principal: Principal, now: datetime) -> Event:
    """What a plain dispatch gives its agent. Raises TooLarge, and ValidationError for an impossible id."""
    return as_read(
        Event(
            event_id=event_id,
            channel=DISPATCH_CHANNEL,
            account="dispatch",
            chat="dispatch",
            audience=DIRECT,
            kind="dispatch",
            principal=principal,
            text=text,
            occurred_at=now,
            payload=payload,
        )
    )


def as_read(event: Event) -> Event:
    """`event` as a record of it would be read, its bytes with it. Raises TooLarge, InvalidEvent."""
    value = event.encode()
    if len(value) > MAX_EVENT_BYTES:
        raise TooLarge(len(value))
    return decode_event(value)


def _lane_key(*parts: str) -> bytes:
    return sha256("|".join(escape(part) for part in parts).encode()).digest()
