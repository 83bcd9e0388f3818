"""The HTTP application of a worker: what its channels need, and what every worker shows of itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from fastapi import FastAPI

from schemas.errors import Misconfigured
from workers.api.body import BodyRoom
from workers.api.closing import Closing
from workers.api.conversations import conversation_routes
from workers.api.events import event_routes
from workers.api.feed import Feed
from workers.api.messages import message_routes
from workers.api.observe import observe_routes
from workers.api.page import page_routes
from workers.api.parts import ApiParts
from workers.api.problems import answer_with_problems
from workers.api.request_log import RequestLog
from workers.api.session import Sessions
from workers.api.webhooks import webhook_routes
from workers.channels.web import HINT, WebChannel

POLL_EVERY = timedelta(milliseconds=250)


class UnusableChannels(Misconfigured):
    """The registered channels cannot be served."""


def create_api(parts: ApiParts) -> FastAPI:
    """The application over `parts`; a web channel comes bound. Raises UnusableChannels."""
    feed, web = _web_of(parts)
    app = FastAPI(
        title=parts.app_name,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_running(feed),
    )
    app.add_middleware(RequestLog, metrics=parts.metrics)
    answer_with_problems(app)
    app.include_router(observe_routes(parts.health, parts.metrics))
    room = BodyRoom()
    if parts.channels:
        app.include_router(webhook_routes(parts, room))
    if parts.operators is not None and parts.database is not None:
        app.include_router(
            conversation_routes(
                parts.database, parts.operators, parts.metrics, parts.retention, parts.limits, room
            )
        )
    if web is not None and feed is not None:
        Closing.of(app).then(feed.end)
        sessions = Sessions(web, parts.now)
        app.include_router(page_routes(parts.app_name, sessions))
        app.include_router(message_routes(parts, web, sessions, room))
        app.include_router(event_routes(feed, sessions))
    return app


def _web_of(parts: ApiParts) -> tuple[Feed | None, WebChannel | None]:
    found = [channel for channel in parts.channels.values() if isinstance(channel, WebChannel)]
    if not found:
        return None, None
    if len(found) > 1:
        raise UnusableChannels("one worker serves one web channel")
    if parts.database is None or parts.hints is None:
        raise UnusableChannels("the web channel needs the database")
    (web,) = found
    return Feed(parts.database, web.mailbox, parts.hints.waiter(HINT), POLL_EVERY), web


def _running(feed: Feed | None) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if feed is None:
            yield
            return
        reading = asyncio.create_task(feed.run(), name="mailbox feed")
        try:
            yield
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    return lifespan
