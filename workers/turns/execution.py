"""One turn from its claim to how it ended: ask the policy, run the agent, name the ending. Writes nothing itself.

The policy, the model and the tools all run outside any transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from schemas import jsonio
from schemas.identity import Identity
from schemas.run import RunStatus
from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership, Permanent, ReplayDiverged, Retryable, classify
from workers.agents.journal import StepRecord
from workers.agents.meter import Meter
from workers.agents.runner import run_agent
from workers.agents.turn import Turn
from workers.memory.access import Access, Allow, Deny
from workers.memory.limits import Conversations
from workers.memory.notes import Notes, NoteScope
from workers.postgres.database import Database
from workers.turns import store
from workers.turns.claim import Claimed
from workers.turns.journal import StepJournal
from workers.turns.policy import Backoff, Ended, Ending, LetGo, Lost, TryAgain, after_retryable

AUTHORIZE_TIMEOUT = timedelta(seconds=5)

log = structlog.get_logger(__name__)


class Splits(Protocol):
    """How a reply's text becomes the chunks of a channel."""

    def __call__(self, channel: str, text: str) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class TurnEnd:
    ending: Ending
    usage: str | None


class Execution:
    """Runs claimed turns; holds what all of them share."""

    def __init__(
        self,
        database: Database,
        agents: Mapping[str, Agent],
        conversations: Conversations | None,
        journal: StepJournal,
        split: Splits,
        *,
        notes: Notes | None = None,
        backoff: Backoff = Backoff(),
        authorize_timeout: timedelta = AUTHORIZE_TIMEOUT,
    ) -> None:
        self._database = database
        self._agents = agents
        self._conversations = conversations
        self._journal = journal
        self._split = split
        self._notes = notes
        self._backoff = backoff
        self._authorize_timeout = authorize_timeout
        self._cancelled: set[UUID] = set()
        self._released: set[UUID] = set()
