"""The HTTP application of a worker: what its channels need, and what every worker shows of itself."""

from fastapi import FastAPI

from schemas.errors import Misconfigured
from workers.api.body import BodyRoom
from workers.api.observe import observe_routes
from workers.api.parts import ApiParts
from workers.api.problems import answer_with_problems
from workers.api.request_log import RequestLog
from workers.api.webhooks import webhook_routes


class UnusableChannels(Misconfigured):
    """The registered channels cannot be served together."""


def create_api(parts: ApiParts) -> FastAPI:
    """The application over `parts`. Raises UnusableChannels for a second web channel."""
    app = FastAPI(title=parts.app_name, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(RequestLog, metrics=parts.metrics)
    answer_with_problems(app)
    app.include_router(observe_routes(parts.health, parts.metrics))
    if parts.channels:
        app.include_router(webhook_routes(parts, BodyRoom()))
    return app
