"""A real Prometheus over the worker processes of the run, asked through its HTTP API."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp

from deploy.checks.alerts import ALERTS
from deploy.checks.live.processes import free_port, started, until

SCRAPE_SECONDS: Final = 1
RATE_INTERVAL: Final = "15s"
READY_WITHIN: Final = timedelta(seconds=30)


class QueryFailed(Exception):
    """Prometheus refused an expression; the text is its reason."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of an answer: its labels, and (seconds of the epoch, value) pairs."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Prometheus:
    """Asks; `query` gives what is now, `query_range` what was."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http

    async def query(self, expression: str) -> list[Series]:
        """The instant answer. Raises QueryFailed."""
        data = await self._get("query", {"query": _interpolated(expression)})
        if data["resultType"] == "scalar":
            return [_series({"metric": {}, "values": [data["result"]]})]
        return [_series({**each, "values": [each["value"]]}) for each in data["result"]]

    async def query_range(self, expression: str, begin: float, end: float, step: float = 1.0) -> list[Series]:
        """The answer from `begin` to `end`, seconds of the epoch. Raises QueryFailed."""
        params = {"query": _interpolated(expression), "start": str(begin), "end": str(end), "step": str(step)}
        data = await self._get("query_range", params)
        return [_series(each) for each in data["result"]]

    async def rules(self) -> list[dict[str, Any]]:
        """Every rule with its `health` and `lastError`."""
        data = await self._get("rules", {})
        return [rule for group in data["groups"] for rule in group["rules"]]

    async def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            async with self._http.get(f"{self._url}/-/ready") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False

    async def _get(self, what: str, params: Mapping[str, str]) -> Any:
        async with self._http.get(f"{self._url}/api/v1/{what}", params=params) as answer:
            said = await answer.json()
        if said["status"] != "success":
            raise QueryFailed(f"{said['errorType']}: {said['error']}")
        return said["data"]


@asynccontextmanager
async def prometheus(folder: Path, targets: Sequence[tuple[str, int]]) -> AsyncIterator[Prometheus]:
    """One that scrapes (role, port) pairs on loopback each second, with the alerts of the project."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(json.dumps(_configuration(targets)), "utf-8")
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    async with started(command, folder / "prometheus.log"), aiohttp.ClientSession() as http:
        server = Prometheus(f"http://127.0.0.1:{port}", http)
        await until("Prometheus answers", server.is_ready, READY_WITHIN)
        yield server


def _configuration(targets: Sequence[tuple[str, int]]) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "2s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "parley",
                "static_configs": [
                    {"targets": [f"127.0.0.1:{port}"], "labels": {"role": role}} for role, port in targets
                ],
            }
        ],
    }


def _interpolated(expression: str) -> str:
    """Grafana's variables as Grafana would fill them in."""
    filled = expression.replace("$__rate_interval", RATE_INTERVAL)
    if unknown := re.findall(r"\$\w+", filled):
        raise QueryFailed(f"a variable that nobody fills in: {unknown[0]}")
    return filled


def _series(result: Mapping[str, Any]) -> Series:
    points = tuple((float(at), float(value)) for at, value in result["values"])
    return Series(dict(result["metric"]), points)
