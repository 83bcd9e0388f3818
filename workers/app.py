"""An application: its agents, the channels they listen to, and the policy that guards conversation memory.

An App is a value. It opens nothing; `parley serve` and the test kit turn it into a running worker. The names that an
application needs beside it (the memory's bounds, the policy's question and answers) are offered here as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.errors import Misconfigured
from workers.agents.agent import Agent
from workers.agents.unbound import RESERVED
from workers.channels.port import Channel
from workers.memory.access import Access, Allow, Deny
from workers.memory.limits import Conversations, Limits

__all__ = ["Access", "Allow", "App", "Conversations", "Deny", "InvalidApp", "Limits"]


class InvalidApp(Misconfigured):
    """An application whose parts do not fit; `problems` names each in one line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class App:
    """What a user's module defines and `parley serve module:app` runs. Raises InvalidApp."""

    def __init__(
        self,
        name: str,
        *,
        agents: Sequence[Agent],
        channels: Sequence[Channel],
        conversations: Conversations | None = None,
    ) -> None:
        self.name = name
        self.agents: Mapping[str, Agent] = {agent.name: agent for agent in agents}
        self.channels: Mapping[str, Channel] = {channel.name: channel for channel in channels}
        self.conversations = conversations
        if problems := _problems(name, agents, channels, conversations):
            raise InvalidApp(problems)


def _problems(
    name: str, agents: Sequence[Agent], channels: Sequence[Channel], conversations: Conversations | None
) -> list[str]:
    problems = [] if name else ["the app has no name"]
    problems += [f"two agents are named {twin!r}" for twin in _twins([agent.name for agent in agents])]
    problems += [
        f"two channels are named {twin!r}" for twin in _twins([channel.name for channel in channels])
    ]
    problems += [
        f"channel {channel.name!r} has a slash in its name" for channel in channels if "/" in channel.name
    ]
    problems += [
        f"channel {channel.name!r}: names that begin with {RESERVED!r} are the engine's own"
        for channel in channels
        if channel.name.startswith(RESERVED)
    ]
    known = {channel.name for channel in channels}
    for agent in agents:
        problems += [
            f"agent {agent.name!r} subscribes to channel {subscription.channel!r}, which is not registered"
            for subscription in agent.subscriptions
            if subscription.channel not in known
        ]
        if agent.memory_key is not None and conversations is None:
            problems.append(
                f"agent {agent.name!r} asks for conversation memory, and the app has none: give App conversations=..."
            )
    return problems


def _twins(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
