"""`POST /channels/{channel}/webhook`: a request proven by the channel's own rules becomes an event.

A refusal names its class only: 401 for whatever was wrong with the proof or its time, 413, or 400 for a
proven request that says nothing usable. A repeat is accepted again; the engine knows it.
"""

from collections.abc import Mapping
from typing import Final

import structlog
from fastapi import APIRouter, Request, Response

from schemas.event import MAX_EVENT_BYTES
from schemas.reason import Reason, RefusedRecord
from workers.api.body import BodyRoom
from workers.api.parts import ApiParts
from workers.api.problems import Problem
from workers.api.publishing import publish_event
from workers.channels.webhook import WebhookChannel, read_request

log = structlog.get_logger(__name__)


_UNPROVEN: Final = frozenset({Reason.UNAUTHENTICATED, Reason.TOO_OLD, Reason.TOO_NEW})


def webhook_routes(parts: ApiParts, room: BodyRoom) -> APIRouter:
    """The one route, for every webhook channel."""
    router = APIRouter()

    @router.post("/channels/{channel}/webhook", status_code=202)
    async def webhook(channel: str, request: Request) -> Response:
        registered = parts.channels.get(channel)
        if not isinstance(registered, WebhookChannel) or registered.keys is None:
            raise Problem(404)
        async with room.body_of(request, MAX_EVENT_BYTES) as body:
            try:
                event = read_request(channel, registered.keys, _headers_of(request), body, parts.now())
            except RefusedRecord as refusal:
                log.info("webhook.refused", channel=channel, reason=refusal.reason)
                raise Problem(_status_of(refusal.reason)) from None
            await publish_event(parts, registered, event, request)
        return Response(status_code=202)

    return router


def _status_of(reason: Reason) -> int:
    if reason in _UNPROVEN:
        return 401
    return 413 if reason is Reason.TOO_LARGE else 400


def _headers_of(request: Request) -> Mapping[str, str]:
    """Names in lower case; a header that came twice is joined by ", ", which no signature header survives."""
    joined: dict[str, str] = {}
    for name, content in request.headers.items():
        joined[name] = f"{joined[name]}, {content}" if name in joined else content
    return joined
