"""`/healthz`, `/readyz` and `/metrics`: served by every worker, whatever its roles."""

from collections.abc import Mapping

from fastapi import APIRouter, Response

from schemas import jsonio
from workers.telemetry.health import Health
from workers.telemetry.metrics import Metrics

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def observe_routes(health: Health, metrics: Metrics) -> APIRouter:
    """The three routes; a probe that says no gives 503."""
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> Response:
        return _answer(await health.live())

    @router.get("/readyz")
    async def readyz() -> Response:
        return _answer(await health.ready())

    @router.get("/metrics")
    async def scrape() -> Response:
        metrics.ready.set(all((await health.ready()).values()))
        return Response(metrics.render(), media_type=_METRICS_TYPE)

    return router


def _answer(probes: Mapping[str, bool]) -> Response:
    status = 200 if all(probes.values()) else 503
    headers = {"cache-control": "no-store"}
    return Response(jsonio.dumps(dict(probes)), status, headers, "application/json")
