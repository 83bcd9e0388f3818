"""Tools for pydantic-ai agents with `deps_type=Turn`: send an answer, and keep notes where there is a conversation.

Notes tools are shown to the model only in runs that are bound to a conversation, and say so when called outside one.
All of them may be called again after a crash: a reply commits with its own record, a note edit happens once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from workers.agents.errors import EmptyReply, NoConversation, NoteRefused, NotesDenied, ReplyTooLong
from workers.agents.pydantic_runner import BOUND_ONLY, REPEATABLE, REPLIES
from workers.agents.turn import Turn
from workers.channels.splitting import TooManyChunks
from workers.memory.notes import Note
from workers.memory.policy import MAX_LISTED

UNBOUND: Final = "this run has no conversation memory: notes tools work only in a conversation"

_PROBLEMS: Final = {
    "key_empty": "the key is empty",
    "key_too_long": "the key is longer than 128 characters (UTF-16 code units)",
    "key_has_controls": "the key holds control characters",
    "key_not_text": "the key is no valid text",
    "body_too_long": "the note is longer than 2048 bytes; shorten it",
    "expiry_out_of_range": "expires_in must be positive and at most ten years, in seconds",
    "too_many_notes": (
        "there are 100 notes already, and nothing was saved or removed; "
        "remove one with memory_remove or replace one by its key"
    ),
    "unknown_cursor": "the cursor is none of this conversation's notes; list from the start, without a cursor",
}


def reply_tools() -> AbstractToolset[Turn]:
    """`reply(text)`: send an answer to where the event came from."""
    toolset: FunctionToolset[Turn] = FunctionToolset(
        metadata={REPEATABLE: True, REPLIES: True}, sequential=True
    )
    toolset.add_function(_reply, name="reply")
    return toolset


def memory_tools() -> AbstractToolset[Turn]:
    """`memory_list`, `memory_get`, `memory_set` and `memory_remove`, in bound runs only."""
    toolset: FunctionToolset[Turn] = FunctionToolset(metadata={REPEATABLE: True, BOUND_ONLY: True})
    for function in (_memory_list, _memory_get, _memory_set, _memory_remove):
        toolset.add_function(function, name=function.__name__.removeprefix("_"))
    return toolset


async def _reply(ctx: RunContext[Turn], text: str) -> str:
    """Send a message to the user. Only what is sent with this tool reaches them.

    Args:
        text: The whole message, as plain text.
    """
    try:
        await ctx.deps.reply(text)
    except EmptyReply:
        raise ToolFailed("nothing was sent: the text is empty") from None
    except (ReplyTooLong, TooManyChunks) as refused:
        raise ToolFailed(f"nothing was sent: {refused}; send a shorter one") from None
    return "sent"


async def _memory_list(
    ctx: RunContext[Turn], cursor: str | None = None, limit: int = MAX_LISTED
) -> dict[str, Any]:
    """List the saved notes of this conversation by key, at most 50 at a time.

    Args:
        cursor: `next_cursor` of the page before; leave it out for the first page.
        limit: How many notes at most, 1 to 50.
    """
    with _words_for_the_model():
        page = await ctx.deps.list_notes(cursor, limit)
    return {"notes": [_shown(note) for note in page.notes], "next_cursor": page.next_cursor}


async def _memory_get(ctx: RunContext[Turn], key: str) -> dict[str, Any]:
    """Read one saved note.

    Args:
        key: The note's key.
    """
    with _words_for_the_model():
        note = await ctx.deps.get_note(key)
    return {"found": False, "key": key} if note is None else {"found": True, **_shown(note)}


async def _memory_set(
    ctx: RunContext[Turn], key: str, text: str, expires_in: float | None = None
) -> dict[str, Any]:
    """Save a note for later runs of this conversation, or replace the one with this key. Only when the user asks.

    Args:
        key: A short name for the note, such as `answer-style`.
        text: What to keep, at most 2048 bytes.
        expires_in: Forget it after so many seconds; leave it out to keep it.
    """
    with _words_for_the_model():
        receipt = await ctx.deps.set_note(key, text, _span(expires_in))
    return {
        "saved": True,
        "key": key,
        "created": receipt.created,
        "body_bytes": receipt.body_bytes,
        "updated_at": receipt.updated_at,
        "expires_at": receipt.expires_at,
    }


async def _memory_remove(ctx: RunContext[Turn], key: str) -> dict[str, Any]:
    """Remove a saved note.

    Args:
        key: The note's key.
    """
    with _words_for_the_model():
        receipt = await ctx.deps.remove_note(key)
    return {"removed": receipt.changed, "key": key}


def _shown(note: Note) -> dict[str, Any]:
    return {
        "key": note.key,
        "text": note.body,
        "updated_at": note.updated_at.isoformat(),
        "expires_at": note.expires_at.isoformat() if note.expires_at else None,
    }


def _span(seconds: float | None) -> timedelta | None:
    try:
        return None if seconds is None else timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return timedelta(0)


@contextmanager
def _words_for_the_model() -> Iterator[None]:
    """Turn what the memory room refuses into a result the model can act on."""
    try:
        yield
    except NoConversation:
        raise ToolFailed(UNBOUND) from None
    except NotesDenied:
        raise ToolFailed("not allowed: the notes of this conversation are closed to this caller") from None
    except NoteRefused as refused:
        raise ToolFailed(f"not done: {_PROBLEMS[refused.problem]}") from None
