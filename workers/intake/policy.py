"""Which agents an event is for, and what its runs are serialized by. Pure.

A bound run is serialized by its conversation, an unbound one by the agent's concurrency key if there is one, else
by nothing but itself: its lane is then named after the event, so that a redelivery meets the same lane.
"""

from collections.abc import Iterable
from hashlib import sha256
from uuid import UUID

from schemas.event import Event
from schemas.identity import escape
from workers.admission.policy import Candidate, LaneKind
from workers.agents.agent import Agent
from workers.memory.binding import conversation_lane_key, identity_of


def subscribers(agents: Iterable[Agent], event: Event) -> list[Agent]:
    """The agents whose subscriptions match `event`, in their order in the app."""
    return [agent for agent in agents if agent.listens_to(event)]


def candidate(agent: Agent, event: Event, run_id: UUID, traceparent: str | None) -> Candidate:
    """The run that `event` asks of `agent`; raises what the agent's `concurrency_key` raises."""
    hash_version, payload_hash = event.payload_hash()
    memory_key = agent.memory_key
    identity = None if memory_key is None else identity_of(memory_key, event)
    kind: LaneKind
    if identity is not None:
        kind, lane_key = "conversation", conversation_lane_key(identity)
    elif agent.concurrency_key is not None:
        kind, lane_key = "key", _lane_key("key", agent.name, agent.concurrency_key(event))
    else:
        kind = "run"
        lane_key = _lane_key("run", agent.name, event.channel, event.account, event.event_id)
    return Candidate(
        run_id=run_id,
        agent=agent.name,
        lane_kind=kind,
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


def _lane_key(*parts: str) -> bytes:
    return sha256("|".join(escape(part) for part in parts).encode()).digest()
