"""`POST /channels/{channel}/webhook`: a request proven by the channel's own rules becomes an event.

A refusal names its class only: 401 for whatever was wrong with the proof or its time, 413, or 400 for a
proven request that says nothing usable. A repeat is accepted again; the engine knows it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol, runtime_checkable

import structlog
from fastapi import APIRouter, Request, Response

from schemas.event import MAX_EVENT_BYTES, Event
from schemas.reason import Reason, RefusedRecord
from workers.api.body import BodyRoom
from workers.api.parts import ApiParts
from workers.api.problems import Problem
from workers.api.publishing import publish_event

log = structlog.get_logger(__name__)


@runtime_checkable
class AcceptsWebhooks(Protocol):
    """A channel whose platform posts to us."""

    def accept(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Event:
        """The event in a request; header names are in lower case. Raises RefusedRecord and nothing else."""


_UNPROVEN: Final = frozenset({Reason.UNAUTHENTICATED, Reason.TOO_OLD, Reason.TOO_NEW})


def webhook_routes(parts: ApiParts, room: BodyRoom) -> APIRouter:
    """The one route, for every channel that accepts webhooks."""
    router = APIRouter()

    @router.post("/channels/{channel}/webhook", status_code=202)
    async def webhook(channel: str, request: Request) -> Response:
        registered = parts.channels.get(channel)
        if registered is None or not isinstance(registered, AcceptsWebhooks):
            raise Problem(404)
        async with room.body_of(request, MAX_EVENT_BYTES) as body:
            try:
                event = registered.accept(_headers_of(request), body, parts.now())
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
