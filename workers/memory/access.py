"""What the app's policy is asked, and what it may answer, wherever conversation memory is used."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from schemas.errors import Transient
from schemas.event import Event
from schemas.identity import Identity, Principal

Purpose = Literal["dispatch", "recall", "notes"]


class PolicyUnavailable(Transient):
    """The app's policy raised or timed out; nothing was decided."""


@dataclass(frozen=True, slots=True)
class Access:
    """One question: may `principal` use the memory `identity` through `agent`?

    `agent` is the agent's real name; `identity.memory_key` is its memory key, which may be another name.
    """

    agent: str
    identity: Identity
    principal: Principal
    purpose: Purpose
    event: Event


@dataclass(frozen=True, slots=True)
class Allow:
    """Yes. `user` names the person for the agent (`turn.user`) when the policy knows them by another name."""

    user: str | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """No. `reason` is shown to operators and never to the user."""

    reason: str


Authorize = Callable[[Access], Awaitable[Allow | Deny]]
