"""The app's policy, asked before admission and outside any transaction, for many events at once.

A denial is final for that delivery of the event. A policy that raises or takes too long leaves the event undecided:
it is asked again for a while, and the later events of its place wait behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog

from schemas.event import Event
from workers.agents.agent import Agent
from workers.memory.access import Access, Deny
from workers.memory.binding import identity_of
from workers.memory.limits import Conversations
from workers.telemetry.metrics import Metrics

AUTHORIZE_TIMEOUT: Final = timedelta(seconds=5)
POLICY_PATIENCE: Final = timedelta(seconds=30)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Decided:
    """The agents that the policy lets have the event."""

    allowed: tuple[Agent, ...]


class Undecided:
    """The policy did not answer for one of the agents."""


class Authorizer:
    """Asks the policy for the bound agents of an event; unbound ones need no answer."""

    def __init__(
        self, conversations: Conversations | None, metrics: Metrics, timeout: timedelta = AUTHORIZE_TIMEOUT
    ) -> None:
        self._conversations = conversations
        self._metrics = metrics
        self._seconds = timeout.total_seconds()

    async def decide_all(self, asked: Sequence[tuple[Event, Sequence[Agent]]]) -> list[Decided | Undecided]:
        """One answer an event, in order."""
        if all(agent.memory_key is None for _, agents in asked for agent in agents):
            return [Decided(tuple(agents)) for _, agents in asked]
        return await asyncio.gather(*(self.decide(event, agents) for event, agents in asked))

    async def decide(self, event: Event, agents: Sequence[Agent]) -> Decided | Undecided:
        """The agents allowed to have `event`, or Undecided where the policy failed for one of them."""
        answers = [await self._allows(event, agent) for agent in agents]
        if any(answer is None for answer in answers):
            return Undecided()
        return Decided(tuple(agent for agent, allowed in zip(agents, answers, strict=True) if allowed))

    async def _allows(self, event: Event, agent: Agent) -> bool | None:
        if agent.memory_key is None or self._conversations is None:
            return True
        access = Access(agent.name, identity_of(agent.memory_key, event), event.principal, "dispatch", event)
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._conversations.authorize(access)
        except Exception as error:
            self._metrics.policy_decisions.labels("failed").inc()
            log.warning(
                "policy.failed", event_id=event.event_id, agent=agent.name, error=type(error).__name__
            )
            return None
        denied = isinstance(answer, Deny)
        self._metrics.policy_decisions.labels("denied" if denied else "allowed").inc()
        if denied:
            log.info("event.denied", event_id=event.event_id, channel=event.channel, agent=agent.name)
        return not denied
