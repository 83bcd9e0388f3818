"""What an agent is, and how one run of it is journalled, replayed and limited. These are the names for authors."""

from typing import TYPE_CHECKING, Any

from workers.agents.agent import Agent, Subscription
from workers.agents.errors import AgentFailed
from workers.agents.meter import RunLimits
from workers.agents.turn import Turn

if TYPE_CHECKING:
    from workers.agents.tools import memory_tools, reply_tools

__all__ = ["Agent", "AgentFailed", "RunLimits", "Subscription", "Turn", "memory_tools", "reply_tools"]


def __getattr__(name: str) -> Any:
    """The tools of pydantic-ai agents, loaded when they are asked for: function agents do without that library."""
    if name in ("memory_tools", "reply_tools"):
        from workers.agents import tools

        return getattr(tools, name)
    raise AttributeError(name)
