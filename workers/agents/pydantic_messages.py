"""What a pydantic-ai model reads: a history that every provider accepts, and the journal's form of its
answers.

The history begins with a user message and alternates; it holds no tool call and no system part.
"""

from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    AudioUrl,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturn,
    ToolReturnContent,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_core import PydanticSerializationError

from schemas.event import Attachment, Event
from workers.agents.canonical import decode_result, encode_result
from workers.agents.context import NO_TEXT, current_text, is_linked, preamble
from workers.agents.errors import NotJournalable
from workers.memory.snapshot import Snapshot

_VALUE: Final[TypeAdapter[Any]] = TypeAdapter(ToolReturnContent)
_CONTENT: Final[TypeAdapter[Any]] = TypeAdapter(str | list[UserContent] | None)
_Link = type[ImageUrl] | type[AudioUrl] | type[VideoUrl] | type[DocumentUrl]
_LINKS: Final[dict[str, _Link]] = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
_MISSING_START: Final = "(The conversation began earlier.)"


def history_of(snapshot: Snapshot) -> list[ModelMessage]:
    """The frozen past as messages: notes and omissions first, then the transcript, oldest first."""
    messages: list[ModelMessage] = []
    if opening := preamble(snapshot):
        _say(messages, opening)
    for exchange in snapshot.history:
        text = exchange.text if exchange.text.strip() else NO_TEXT
        if exchange.role == "user":
            _say(messages, text)
        else:
            _answer(messages, text)
    return messages


def prompt_of(event: Event) -> str | list[UserContent]:
    """The current user message: the accepted text, with its linked attachments."""
    text = current_text(event)
    links = [_link(attachment) for attachment in event.attachments if is_linked(attachment)]
    return [text, *links] if links else text


def stored_response(response: ModelResponse) -> bytes:
    """A model's response as strict JSON with storable text."""
    return encode_result("model", ModelMessagesTypeAdapter.dump_python([response], mode="json"))


def restored_response(stored: bytes | None) -> ModelResponse:
    """The response that `stored_response` wrote."""
    (message,) = ModelMessagesTypeAdapter.validate_json(stored or b"")
    assert isinstance(message, ModelResponse)
    return message


def stored_return(name: str, value: Any) -> bytes:
    """What a tool returned, as strict JSON with storable text. Raises NotJournalable."""
    try:
        if isinstance(value, ToolReturn):
            return encode_result(
                name,
                {
                    "return": _VALUE.dump_python(value.return_value, mode="json"),
                    "content": _CONTENT.dump_python(value.content, mode="json"),
                    "metadata": _VALUE.dump_python(value.metadata, mode="json"),
                    "tools": value.tools,
                },
            )
        return encode_result(name, {"return": _VALUE.dump_python(value, mode="json")})
    except PydanticSerializationError:
        raise NotJournalable(name, "result", type(value).__qualname__) from None


def restored_return(document: dict[str, Any]) -> Any:
    """The tool's value again: plain data, media content, or a ToolReturn."""
    value = _VALUE.validate_python(document["return"])
    if "content" not in document:
        return value
    restored = ToolReturn(
        value, content=_CONTENT.validate_python(document["content"]), metadata=document["metadata"]
    )
    if document["tools"] is not None:
        restored.tools = document["tools"]
    return restored


def outcome_document(stored: bytes | None) -> dict[str, Any]:
    """The JSON object a tool's outcome was stored as: `return`, `retry` or `failed` is in it."""
    document: dict[str, Any] = decode_result(stored)
    return document


def _say(messages: list[ModelMessage], text: str) -> None:
    part = UserPromptPart(text)
    if messages and isinstance(last := messages[-1], ModelRequest):
        messages[-1] = ModelRequest([*last.parts, part])
    else:
        messages.append(ModelRequest([part]))


def _answer(messages: list[ModelMessage], text: str) -> None:
    if not messages:
        _say(messages, _MISSING_START)
    if isinstance(last := messages[-1], ModelResponse):
        messages[-1] = ModelResponse([*last.parts, TextPart(text)])
    else:
        messages.append(ModelResponse([TextPart(text)]))


def _link(attachment: Attachment) -> UserContent:
    kind = _LINKS.get(attachment.media_type.split("/", 1)[0], DocumentUrl)
    return kind(attachment.url or "", media_type=attachment.media_type)
