"""A worker process whose agent is a model with memory tools: `python -m tests.memory.note_worker JSON`."""

import asyncio
import json
import sys

from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.support.events import an_agent
from tests.support.turn_worker import Orders, follow_parent, main
from workers.agents.agent import Agent
from workers.agents.tools import memory_tools
from workers.agents.turn import Turn

SAID = ("the first secret", "the second secret")


async def saves_two_notes(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for two notes in one response, then ends."""
    if len(messages) > 1:
        return ModelResponse([TextPart("done")])
    calls = [
        ToolCallPart("memory_set", {"key": f"k{n}", "text": text}, f"call-{n}") for n, text in enumerate(SAID)
    ]
    return ModelResponse(list(calls))


def a_note_taker() -> Agent:
    """The agent, the same in every process."""
    runs = ModelAgent(FunctionModel(saves_two_notes), deps_type=Turn, toolsets=[memory_tools()])
    return an_agent(runs=runs, conversation=True)


if __name__ == "__main__":
    follow_parent()
    asyncio.run(main(Orders(**json.loads(sys.argv[1])), a_note_taker()))
