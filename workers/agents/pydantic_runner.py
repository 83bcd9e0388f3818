"""A pydantic-ai agent under the journal: what its models answered and its tools returned is replayed after a
crash.

Response n of a run is step n at call 0, its tool calls are calls 1, 2, ... in the order of the response. A
tool that is not declared repeatable is journalled before it runs; found so after a crash, its outcome is
unknown, and that is what the model is told as the call's result. The agent itself is used as it is: one
capability is added to the run.
"""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import UsageLimits

from workers.agents.agent import Agent
from workers.agents.canonical import args_digest, encode_result
from workers.agents.journal import Position
from workers.agents.policy import Interrupted, Replay
from workers.agents.pydantic_messages import (
    history_of,
    outcome_document,
    prompt_of,
    restored_response,
    restored_return,
    stored_response,
    stored_return,
)
from workers.agents.turn import Turn

INTERRUPTED: Final = "interrupted, outcome unknown"
REPEATABLE: Final = "repeatable"
REPLIES: Final = "parley_replies"
BOUND_ONLY: Final = "parley_bound_only"

_MODEL_DIGEST: Final = args_digest("model", ())


async def run_model_agent(agent: Agent, turn: Turn) -> None:
    """Run the pydantic-ai agent `agent.runs` on the turn's event, its past before it."""
    result = await agent.runs.run(
        prompt_of(turn.event),
        message_history=history_of(turn.snapshot) if turn.snapshot else None,
        deps=turn,
        usage_limits=UsageLimits(request_limit=None),
        capabilities=[Journalled(turn), ReinjectSystemPrompt()],
    )
    answered = turn.meter.answered or turn.steps.emitted_before
    turn.meter.ended_unsent = not answered and isinstance(result.output, str) and bool(result.output)


class Journalled(AbstractCapability[Turn]):
    """Stands around every model request and tool call of one run."""

    def __init__(self, turn: Turn) -> None:
        self.id = "parley_journal"
        self._turn = turn
        self._steps = turn.steps
        self._step = 0
        self._calls = 0
        self._places: defaultdict[str, deque[Position]] = defaultdict(deque)

    def get_ordering(self) -> CapabilityOrdering:
        """Outermost: what is replayed reaches no other capability, what is recorded is what they left."""
        return CapabilityOrdering(position="outermost")

    async def wrap_model_request(
        self,
        ctx: RunContext[Turn],
        *,
        request_context: ModelRequestContext,
        handler: Callable[[ModelRequestContext], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        """The recorded response of this step, or the model's, recorded before anybody acts on it."""
        turn = self._turn
        self._step = self._steps.take()
        turn.meter.count_step(turn.agent.limits)
        at = (self._step, 0)
        met = self._steps.meet(at, "model", "model", _MODEL_DIGEST)
        if isinstance(met, Replay):
            response = restored_response(met.result)
        else:
            stored = stored_response(await handler(self._offered(request_context)))
            await self._steps.finish(at, "model", "model", _MODEL_DIGEST, stored)
            response = restored_response(stored)
        self._place_calls(response)
        usage = response.usage
        turn.meter.count_response(
            response.model_name or "unknown", usage.input_tokens, usage.output_tokens, turn.agent.limits
        )
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Turn],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """The recorded outcome of this call, or the tool's own, recorded before the model sees it."""
        at = self._place_of(call)
        name = tool_def.name
        digest = args_digest(name, args)
        metadata = tool_def.metadata or {}
        replies, repeatable = bool(metadata.get(REPLIES)), bool(metadata.get(REPEATABLE))
        met = self._steps.meet(at, "tool", name, digest, repeatable=repeatable)
        if isinstance(met, Replay):
            if replies and b'"return"' in (met.result or b""):
                self._turn.meter.count_reply(self._turn.agent.limits)
                self._turn.meter.answered = True
            return _outcome(met.result)
        if isinstance(met, Interrupted):
            stored = encode_result(name, {"failed": INTERRUPTED})
            await self._steps.finish(at, "tool", name, digest, stored)
            return _outcome(stored)
        if not repeatable:
            await self._steps.start(at, "tool", name, digest)
        with self._steps.enter(at, stages=replies) as scope:
            stored = await _stored_outcome(name, handler, args)
        await self._steps.finish(at, "tool", name, digest, stored, scope.staged)
        return _outcome(stored)

    def _offered(self, request: ModelRequestContext) -> ModelRequestContext:
        """The request without the tools that need a conversation, when the run has none: hidden, not removed,
        so that a model which calls one anyway is told why it cannot.
        """
        parameters = request.model_request_parameters
        if self._turn.has_conversation:
            return request
        offered = [tool for tool in parameters.function_tools if not (tool.metadata or {}).get(BOUND_ONLY)]
        return replace(request, model_request_parameters=replace(parameters, function_tools=offered))

    def _place_calls(self, response: ModelResponse) -> None:
        self._places.clear()
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        self._calls = len(calls)
        for number, part in enumerate(calls, start=1):
            self._places[part.tool_call_id].append((self._step, number))

    def _place_of(self, call: ToolCallPart) -> Position:
        """The call's place in the response; one that another tool made itself comes after those, in call order."""
        if places := self._places.get(call.tool_call_id):
            return places.popleft()
        self._calls += 1
        return self._step, self._calls


async def _stored_outcome(
    name: str, handler: Callable[[dict[str, Any]], Awaitable[Any]], args: dict[str, Any]
) -> bytes:
    """What came of the tool, as it is journalled; an exception that is no word to the model comes through."""
    try:
        return stored_return(name, await handler(args))
    except ModelRetry as retry:
        return encode_result(name, {"retry": retry.message})
    except ToolRetryError as retry:
        return encode_result(name, {"retry": str(retry)})
    except (ToolFailed, ToolFailedError) as failed:
        return encode_result(name, {"failed": str(failed)})


def _outcome(stored: bytes | None) -> Any:
    """The outcome again: the value, or the same word to the model as the tool gave."""
    document = outcome_document(stored)
    if "retry" in document:
        raise ModelRetry(document["retry"])
    if "failed" in document:
        raise ToolFailed(document["failed"])
    return restored_return(document)
