"""One way to run every kind of agent: a plain async function is called, a pydantic-ai agent gets a journalled run.

No model library is imported for a function agent.
"""

import structlog

from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership
from workers.agents.turn import Turn

log = structlog.get_logger(__name__)


async def run_agent(agent: Agent, turn: Turn) -> None:
    """Run `agent` to its end in `turn`; its exceptions come through, for `errors.classify`.

    Ownership that was lost on the way is raised even where the agent swallowed it, and nothing that the agent left
    running can journal after this returns.
    """
    steps = turn.steps
    try:
        if agent.is_function:
            await agent.runs(turn)
        else:
            from workers.agents.pydantic_runner import run_model_agent

            await run_model_agent(agent, turn)
        if steps.closed:
            raise LostOwnership
    finally:
        steps.close()
    if turn.meter.ended_unsent and turn.has_conversation:
        log.warning("turn.ended_without_reply", run_id=str(turn.run_id), agent=agent.name)
