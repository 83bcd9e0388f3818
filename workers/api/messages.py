"""What a visitor types, over HTTP: `POST /web/messages` from the page's own origin, with the page's cookie.

The 202 follows the broker's acknowledgement. The same `client_id` again is the same event.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Annotated, Final, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import structlog
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from schemas import jsonio
from schemas.event import Event
from workers.api.body import BodyRoom
from workers.api.parts import ApiParts
from workers.api.problems import Problem
from workers.api.publishing import publish_event
from workers.api.rate import RateLimit
from workers.api.session import Sessions
from workers.channels.web import MAX_TEXT_BYTES, WebChannel

T = TypeVar("T")
log = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 256 * 1024
BURST: Final = 20
PER_SECOND: Final = 1.0
KEEP_WITHIN_S: Final = 1.0


class Message(BaseModel):
    """The body of a post; `client_id` is the page's own id of the message, new for each message."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: Annotated[str, StringConstraints(strict=True, min_length=1)]
    client_id: Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None


def message_routes(parts: ApiParts, channel: WebChannel, sessions: Sessions, room: BodyRoom) -> APIRouter:
    """The one route."""
    router = APIRouter()
    rate = RateLimit(BURST, PER_SECOND, time.monotonic)

    @router.post("/web/messages", status_code=202)
    async def post_message(request: Request) -> Response:
        _require_own_page(request, channel)
        visitor = sessions.visitor(request)
        if wait_s := rate.wait_s(visitor.chat):
            raise Problem(429, retry_after_s=wait_s)
        async with room.body_of(request, MAX_BODY_BYTES) as body:
            message = read_message(body)
            message_id = message.client_id or uuid4().hex
            event = channel.message(visitor.chat, visitor.principal, message_id, message.text, parts.now())
            said_at = await _try("clock", event, channel.clock())
            await publish_event(parts, channel, event, request)
        await _try("kept", event, channel.keep_own(event, said_at))
        return Response(jsonio.dumps({"message": message_id}), 202, media_type="application/json")

    return router


def read_message(body: bytes) -> Message:
    """The message in a body. Raises Problem 400 or 413."""
    try:
        message = Message.model_validate(jsonio.loads(body))
    except (jsonio.InvalidJson, ValidationError):
        raise Problem(400) from None
    if not message.text.strip():
        raise Problem(400)
    if len(message.text.encode()) > MAX_TEXT_BYTES:
        raise Problem(413)
    return message


def is_own_origin(origin: str | None, host: str | None, allowed: frozenset[str]) -> bool:
    """Whether a browser says that the page itself asks: `origin` is allowed by name, or its host is `host`."""
    if origin is None:
        return False
    if origin in allowed:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(host) and parts.netloc.lower() == (host or "").lower()


def _require_own_page(request: Request, channel: WebChannel) -> None:
    headers = request.headers
    if not is_own_origin(headers.get("origin"), headers.get("host"), channel.origins):
        raise Problem(403, "forbidden_origin")
    if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise Problem(415)


async def _try(what: str, event: Event, work: Awaitable[T]) -> T | None:
    # Only the broker decides whether a message is accepted; what a reload shows is worth a short try.
    try:
        async with asyncio.timeout(KEEP_WITHIN_S):
            return await work
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        log.warning("mailbox.away", lacks=what, event_id=event.event_id, error=type(error).__name__)
        return None
