"""One log line and one count for each request, by route template: no path, no query, no body, no header.

A path that no route has counts as `unmatched`, so that strangers cannot make metrics grow.
"""

import time
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workers.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})


class RequestLog:
    """ASGI middleware; outermost, so that refusals are counted too."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            self._note(scope, status, time.monotonic() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.http_requests.labels(route, method, f"{status // 100}xx").inc()
        write = log.debug if route in _QUIET else log.info
        write("http.request", route=route, method=method, status=status, seconds=round(seconds, 4))
