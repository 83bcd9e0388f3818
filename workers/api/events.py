"""Messages out to the page as server-sent events: the visitor's own mailbox, from a cursor on, without end.

An event's id is the cursor after it, so a browser that reconnects with `Last-Event-ID` misses nothing and sees
nothing twice. A foreign mailbox and an unknown one answer alike.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from schemas import jsonio
from workers.api.feed import AWAY, Feed
from workers.api.problems import Problem
from workers.api.session import Sessions
from workers.channels.mailbox import Letter

KEEP_ALIVE: Final = timedelta(seconds=15)
HISTORY: Final = 100
_HEADERS: Final = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    "x-content-type-options": "nosniff",
}


def event_routes(feed: Feed, sessions: Sessions, keep_alive: timedelta = KEEP_ALIVE) -> APIRouter:
    """`/web/events`, and the same by the mailbox's name."""
    router = APIRouter()

    async def stream_of(chat: str, request: Request, after: str | None) -> Response:
        cursor = read_cursor(request.headers.get("last-event-id") or after)
        if feed.has_ended or not feed.has_room_for(chat):
            raise Problem(503, retry_after_s=2)
        try:
            cursor = await feed.start_of(chat, HISTORY) if cursor is None else cursor
        except AWAY:
            raise Problem(503, retry_after_s=2) from None
        return StreamingResponse(_stream(feed, chat, cursor, keep_alive), 200, _HEADERS, "text/event-stream")

    @router.get("/web/events")
    async def own_events(request: Request, after: str | None = None) -> Response:
        return await stream_of(sessions.visitor(request).chat, request, after)

    @router.get("/web/mailboxes/{chat}/events")
    async def mailbox_events(chat: str, request: Request, after: str | None = None) -> Response:
        if sessions.visitor(request).chat != chat:
            raise Problem(404)
        return await stream_of(chat, request, after)

    return router


def read_cursor(text: str | None) -> int | None:
    """The cursor in a header or a query; None where there is none. Raises Problem 400."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Problem(400)
    return int(text)


def encode_letter(letter: Letter) -> bytes:
    """One server-sent event; JSON has no line break, so one data line holds it."""
    document: dict[str, object] = {
        "id": letter.id,
        "direction": letter.direction,
        "text": letter.body,
        "at": letter.created_at.isoformat(),
    }
    if letter.direction == "in":
        document["message"] = letter.key.rpartition(":")[2]
    return b"id: %d\ndata: %s\n\n" % (letter.id, jsonio.dumps(document))


async def _stream(feed: Feed, chat: str, cursor: int, keep_alive: timedelta) -> AsyncIterator[bytes]:
    with feed.reading(chat, cursor) as reader:
        yield b"retry: 1000\n: open\n\n"
        while not feed.has_ended:
            letters = await reader.take(keep_alive)
            yield b"".join(map(encode_letter, letters)) or b": keep-alive\n\n"
