"""Which agents an event is for, and what its runs are serialized by. Pure.

A bound run is serialized by its conversation, an unbound one by the agent's concurrency key if there is one, else
by nothing but itself: its lane is then named after the event, so that a redelivery meets the same lane.
"""

from collections.abc import Iterable
from uuid import UUID

from schemas.event import Event
from workers.admission.policy import Candidate
from workers.agents.agent import Agent
from workers.agents.unbound import candidate_in, unbound_candidate
from workers.memory.binding import conversation_lane_key, identity_of


def subscribers(agents: Iterable[Agent], event: Event) -> list[Agent]:
    """The agents whose subscriptions match `event`, in their order in the app."""
    return [agent for agent in agents if agent.listens_to(event)]


def candidate(agent: Agent, event: Event, run_id: UUID, traceparent: str | None) -> Candidate:
    """The run that `event` asks of `agent`; raises what the agent's `concurrency_key` raises."""
    if agent.memory_key is None:
        return unbound_candidate(agent, event, run_id, traceparent)
    identity = identity_of(agent.memory_key, event)
    lane_key = conversation_lane_key(identity)
    return candidate_in("conversation", lane_key, identity, agent, event, run_id, traceparent)
