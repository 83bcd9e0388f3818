"""The app's policy, asked before admission and outside any transaction, for many events at once.

A denial is final for that delivery of the event. A policy that raises or takes too long leaves the event undecided:
it is asked again for a while, and the later events of its place wait behind it. Only Allow allows: whatever else a
policy returns counts as its failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog

from schemas.event import Event
from workers.agents.agent import Agent
from workers.memory.access import Access, Deny
from workers.memory.asking import ask
from workers.memory.binding import identity_of
from workers.memory.limits import Conversations
from workers.telemetry.metrics import Metrics

AUTHORIZE_TIMEOUT: Final = timedelta(seconds=5)
POLICY_PATIENCE: Final = timedelta(seconds=30)
AT_ONCE_SECONDS: Final = 0.001
"""A policy that has not answered after this waits for something."""

log = structlog.get_logger(__name__)


class Decided(NamedTuple):
    """The agents that the policy lets have the event."""

    allowed: tuple[Agent, ...]


@dataclass(frozen=True, slots=True)
class Undecided:
    """The policy failed for an agent; `known` are its answers about the others, by name, which are final."""

    known: Mapping[str, bool] = field(default_factory=dict)


class Question(NamedTuple):
    """May these agents have the event? `known` answers are not asked for again."""

    event: Event
    agents: Sequence[Agent]
    known: Mapping[str, bool] = MappingProxyType({})


class Authorizer:
    """Asks the policy for the bound agents of an event; unbound ones need no answer."""

    def __init__(
        self, conversations: Conversations | None, metrics: Metrics, timeout: timedelta = AUTHORIZE_TIMEOUT
    ) -> None:
        self._conversations = conversations
        self._metrics = metrics
        self._seconds = timeout.total_seconds()

    async def decide_all(self, questions: Sequence[Question]) -> list[Decided | Undecided]:
        """One answer a question, in order. A policy that answers at once is asked in a row; while it waits for
        something, all others are asked beside it."""
        if all(agent.memory_key is None for each in questions for agent in each.agents):
            return [Decided(tuple(each.agents)) for each in questions]
        answers: list[Decided | Undecided] = [Undecided()] * len(questions)
        places = iter(range(len(questions)))

        async def ask_in_a_row() -> None:
            for place in places:
                answers[place] = await self._decide(questions[place])

        async with asyncio.TaskGroup() as rows:
            first = rows.create_task(ask_in_a_row())
            await asyncio.wait({first}, timeout=AT_ONCE_SECONDS)
            if not first.done():
                for _ in range(len(questions) - 1):
                    rows.create_task(ask_in_a_row())
        return answers

    async def _decide(self, question: Question) -> Decided | Undecided:
        if len(question.agents) == 1:
            answers = [await self._answer(question, question.agents[0])]
        else:
            answers = await asyncio.gather(*(self._answer(question, agent) for agent in question.agents))
        known = {
            agent.name: answer
            for agent, answer in zip(question.agents, answers, strict=True)
            if answer is not None
        }
        if len(known) < len(question.agents):
            return Undecided(known)
        return Decided(tuple(agent for agent in question.agents if known[agent.name]))

    async def _answer(self, question: Question, agent: Agent) -> bool | None:
        if agent.name in question.known:
            return question.known[agent.name]
        if agent.memory_key is None or self._conversations is None:
            return True
        event = question.event
        access = Access(agent.name, identity_of(agent.memory_key, event), event.principal, "dispatch", event)
        try:
            answer = await ask(self._conversations.authorize, access, self._seconds)
        except BaseException as error:
            if not _is_the_policys(error):
                raise
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


def _is_the_policys(error: BaseException) -> bool:
    """Whether the policy raised it by itself: SystemExit is, the end of the process or of the caller is not."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    return not isinstance(error, KeyboardInterrupt)
