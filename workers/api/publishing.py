"""An event that came over HTTP is signed and published; 2xx follows only the broker's acknowledgement."""

import asyncio

import structlog
from fastapi import Request

from schemas.errors import ParleyError, Rejected
from schemas.event import Event
from workers.api.parts import ApiParts
from workers.api.problems import Problem
from workers.channels.port import Channel
from workers.channels.sealing import seal
from workers.telemetry.tracing import carry_on, current_traceparent

log = structlog.get_logger(__name__)

RETRY_AFTER_S = 5


async def publish_event(parts: ApiParts, channel: Channel, event: Event, request: Request) -> None:
    """Returns once the event is safe. Raises Problem 413, or 503 when nobody can tell that it is."""
    with carry_on("http.event", request.headers.get("traceparent"), channel=channel.name):
        try:
            sealed = seal(event, channel.keys, parts.now(), current_traceparent())
            async with asyncio.timeout(parts.publish_within.total_seconds()):
                await parts.publish(sealed)
        except Rejected:  # by its size alone: the event itself is ours
            raise Problem(413) from None
        except (ParleyError, TimeoutError, OSError) as error:
            why = type(error).__name__
            log.warning("event.not_published", channel=channel.name, event_id=event.event_id, error=why)
            raise Problem(503, retry_after_s=RETRY_AFTER_S) from error
    log.info("event.published", channel=channel.name, event_id=event.event_id, conversation_id=event.chat)
