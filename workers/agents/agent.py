"""What an agent is: a name, what runs, what it listens to, and what it may use."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, Final

from schemas.errors import Misconfigured
from schemas.event import Event
from workers.agents.meter import DEFAULT_LIMITS, RunLimits
from workers.agents.policy import OnChange

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.IGNORECASE)


class InvalidAgent(Misconfigured):
    """An agent that cannot be run as it is declared; the text names the argument."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Events of the kind `trigger` on the channel `channel` start a run."""

    channel: str
    trigger: str = "message"

    def matches(self, event: Event) -> bool:
        """Whether `event` starts a run by this subscription."""
        return event.channel == self.channel and event.kind == self.trigger


@dataclass(frozen=True, slots=True)
class Agent:
    """`runs` is an async function of a Turn, or a pydantic-ai Agent with `deps_type=Turn`. Raises
    InvalidAgent.

    conversation: False, True (the agent's name is the memory key) or a stable memory key. version: change it
    when running code no longer does what a half-finished run recorded; see `on_change`. retries: how often a
    retryable failure is tried again; max_crash_attempts: how many crashes are charged to a run. on_failure:
    one message to the user when a run fails for good.
    """

    name: str
    runs: Any
    conversation: bool | str = False
    subscriptions: Sequence[Subscription] = ()
    version: str = "1"
    on_change: OnChange = "fail"
    limits: RunLimits = DEFAULT_LIMITS
    timeout: timedelta = timedelta(minutes=10)
    retries: int = 5
    max_crash_attempts: int = 3
    concurrency_key: Callable[[Event], str] | None = None
    on_failure: str | None = None

    def __post_init__(self) -> None:
        if problem := _problem(self):
            raise InvalidAgent(f"agent {self.name!r}: {problem}")

    @property
    def memory_key(self) -> str | None:
        """What its conversations are found by; None when it keeps none."""
        if self.conversation is True:
            return self.name
        return self.conversation or None

    @property
    def is_function(self) -> bool:
        """Whether `runs` is a plain async function, which needs no model library."""
        return iscoroutinefunction(self.runs)

    def listens_to(self, event: Event) -> bool:
        """Whether a subscription of the agent matches `event`."""
        return any(subscription.matches(event) for subscription in self.subscriptions)


def _problem(agent: Agent) -> str | None:
    checks: list[tuple[bool, str]] = [
        (bool(_NAME.fullmatch(agent.name)), "name must be 1 to 64 of A-Z a-z 0-9 . _ -"),
        (
            agent.is_function or hasattr(agent.runs, "iter"),
            "runs must be an async function or a pydantic-ai Agent",
        ),
        (
            isinstance(agent.conversation, bool) or _is_key(agent.conversation),
            "conversation must be a bool or a key",
        ),
        (bool(agent.version), "version must not be empty"),
        (agent.on_change in ("fail", "continue"), "on_change must be 'fail' or 'continue'"),
        (agent.limits.steps > 0 and agent.limits.replies > 0, "limits must be positive"),
        (agent.limits.tokens is None or agent.limits.tokens > 0, "limits.tokens must be positive or None"),
        (agent.timeout > timedelta(0), "timeout must be positive"),
        (agent.retries >= 0, "retries must not be negative"),
        (agent.max_crash_attempts > 0, "max_crash_attempts must be positive"),
        (
            not (agent.conversation and agent.concurrency_key),
            "concurrency_key is derived where conversation is on",
        ),
    ]
    return next((problem for holds, problem in checks if not holds), None)


def _is_key(value: str) -> bool:
    return 0 < len(value) <= 256 and value.isprintable()
