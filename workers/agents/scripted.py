"""A helper that needs no model provider: it keeps what it is asked to, and answers from what it is shown.

It knows nothing but the messages it receives, as any model does: without recall it has no answer.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from workers.agents.context import CLOSING, LABEL, NOT_SHOWN, OPENING
from workers.agents.tools import memory_tools, reply_tools
from workers.agents.turn import Turn

_REMEMBER: Final = re.compile(r"\bremember\b[:,]?\s+(?:that\s+)?(?P<fact>.+)", re.IGNORECASE | re.DOTALL)
_RECALL: Final = re.compile(
    r"\b(?:what|which|who|where|when|how|do you)\b.*\b(?:i|my|me|you know|remember)\b",
    re.IGNORECASE | re.DOTALL,
)
_WORD: Final = re.compile(r"\w+")
_DULL: Final = frozenset(
    _WORD.findall(
        "a an about am and are as at did do does for from have how i in is it know me my of on or please remember"
        " tell that the this to told what when where which who you your"
    )
)


def scripted_helper() -> ModelAgent[Turn, str]:
    """A pydantic-ai agent with reply and memory tools on a scripted model named `scripted`."""
    return ModelAgent(
        FunctionModel(_respond, model_name="scripted"),
        deps_type=Turn,
        name="scripted_helper",
        instructions="Help the user. Send answers with reply. Save notes only when asked.",
        toolsets=[reply_tools(), memory_tools()],
    )


async def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    results = list(_results_of_this_run(messages))
    if any(result.tool_name == "reply" for result in results):
        return ModelResponse([TextPart("done")])
    text = _current_text(messages)
    tools = {tool.name for tool in info.function_tools}
    if (asked := _REMEMBER.search(text)) and not _RECALL.match(text):
        return _remember(asked["fact"].strip().rstrip("."), results, tools)
    if _RECALL.search(text):
        return _reply(_recalled(text, messages))
    earlier = len(_earlier_texts(messages))
    return _reply(f"You said: {text} (earlier messages I can see: {earlier})")


def _remember(fact: str, results: list[ToolReturnPart], tools: set[str]) -> ModelResponse:
    if "memory_set" not in tools:
        return _reply("I cannot keep notes here: this run has no conversation memory.")
    saved = next((result for result in results if result.tool_name == "memory_set"), None)
    if saved is None:
        return ModelResponse([ToolCallPart("memory_set", {"key": _key_of(fact), "text": fact})])
    if saved.outcome != "success":
        return _reply(f"I could not save that: {saved.model_response_str()}")
    return _reply(f"I will remember that {fact}.")


def _recalled(question: str, messages: list[ModelMessage]) -> str:
    """The known line that shares most words with the question; of equals, the later one, and notes before the rest."""
    known = [*_earlier_texts(messages), *_notes_shown(messages)]
    asked = _words(question)
    best = max(enumerate(known), key=lambda pair: (len(asked & _words(pair[1])), pair[0]), default=None)
    if best is None:
        return "I do not know: I was shown no notes and no earlier messages."
    return f'You told me: "{best[1]}"'


def _notes_shown(messages: list[ModelMessage]) -> list[str]:
    """The notes in the block that stands before everything else, if there is one."""
    first = _user_texts(messages)[0]
    if not first.startswith(LABEL):
        return []
    block = first.split(OPENING, 1)[1].split(CLOSING, 1)[0]
    return [json.loads(line)["note"] for line in block.strip().splitlines()]


def _earlier_texts(messages: list[ModelMessage]) -> list[str]:
    """What the user said before the current message; what stands before the transcript is no message of theirs."""
    texts = _user_texts(messages)[:-1]
    return texts[1:] if texts and texts[0].startswith((LABEL, NOT_SHOWN)) else texts


def _current_text(messages: list[ModelMessage]) -> str:
    return _user_texts(messages)[-1]


def _user_texts(messages: list[ModelMessage]) -> list[str]:
    return [
        content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
        for content in ([part.content] if isinstance(part.content, str) else part.content)
        if isinstance(content, str)
    ]


def _results_of_this_run(messages: list[ModelMessage]) -> Iterator[ToolReturnPart]:
    """Tool results: a recalled history holds none, so all are this run's."""
    for message in messages:
        if isinstance(message, ModelRequest):
            yield from (part for part in message.parts if isinstance(part, ToolReturnPart))


def _reply(text: str) -> ModelResponse:
    return ModelResponse([ToolCallPart("reply", {"text": text})])


def _key_of(fact: str) -> str:
    words = [word for word in _WORD.findall(fact.lower()) if word not in _DULL]
    return "-".join(words[:4])[:60] or "note"


def _words(text: str) -> set[str]:
    """Words without their plural or third-person `s`, dull ones left out."""
    return {word.rstrip("s") for word in _WORD.findall(text.lower())} - _DULL
