"""Every query of the dashboards, of the alerts and of the scalers, answered by a Prometheus over a run under load.

The run lasts until every query has an answer (bounded in time); in its middle a worker is killed, so that its turns are
taken over.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from deploy.checks.dashboards import Dashboard
from deploy.checks.live.installation import EVENTS_TOPIC, REPLICAS, Installation, installation
from deploy.checks.live.operator import look_on
from deploy.checks.live.platform import Platform
from deploy.checks.live.processes import resident_bytes
from deploy.checks.live.prometheus import Prometheus, QueryFailed, Series, prometheus

EVENTS: Final = 1500
EVENTS_BEFORE_THE_KILL: Final = 600
WITHIN_SECONDS: Final = 180
RARE: Final = frozenset({"Rows removed by retention"})
"""Panels that may be empty: what they show is days away from any run."""

Answers = Mapping[tuple[str, str, str], Sequence[Series]]
"""By dashboard, panel title and expression."""


@dataclass(slots=True)
class Findings:
    """What the run said: `problems` in one line each, and the `answers` from `begin` to `end`, seconds of the epoch."""

    problems: list[str] = field(default_factory=list)
    answers: dict[tuple[str, str, str], list[Series]] = field(default_factory=dict)
    begin: float = 0.0
    end: float = 0.0
    queries: int = 0
    events: int = 0
    memory: dict[str, int] = field(default_factory=dict)


async def look(dashboards: Sequence[Dashboard], scaling: Mapping[str, str]) -> Findings:
    """Run, ask, and say what is wrong; `scaling` are further expressions by what asks for them."""
    findings = Findings()
    async with Platform() as platform, installation(platform.url) as made:
        targets = [(worker.role, worker.port) for worker in made.workers]
        async with prometheus(made.folder, targets) as server, _load(platform, made) as load:
            findings.begin = time.time()
            await _until_answered(server, _expressions(dashboards, scaling), platform, made, load)
            findings.end = time.time()
            await _ask_all(server, dashboards, scaling, findings)
            findings.problems += await _rule_problems(server)
        findings.events = platform.posted
        findings.memory = _memory(made)
        findings.problems += [f"workers write where they are started: {name}" for name in made.left_behind()]
    return findings


@asynccontextmanager
async def _load(platform: Platform, made: Installation) -> AsyncIterator[asyncio.Task[None]]:
    load = asyncio.create_task(_busy(platform, made), name="load")
    try:
        yield load
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)


async def _busy(platform: Platform, made: Installation) -> None:
    port = made.of("api")[0].port
    async with asyncio.TaskGroup() as group:
        group.create_task(platform.run(port, made.bootstrap, EVENTS_TOPIC))
        group.create_task(look_on(port, made.operator_token))


async def _until_answered(
    server: Prometheus,
    expressions: Sequence[str],
    platform: Platform,
    made: Installation,
    load: asyncio.Task[None],
) -> None:
    """Until nothing that must have an answer lacks one, and enough has happened to draw; or until time is up."""
    lacking, killed = list(expressions), False
    ends = time.monotonic() + WITHIN_SECONDS
    while time.monotonic() < ends and (lacking or platform.posted < EVENTS):
        if load.done():
            load.result()
        if platform.posted >= EVENTS_BEFORE_THE_KILL and not killed:
            made.of("turns")[-1].process.kill()
            killed = True
        try:
            lacking = [each for each in lacking if not await server.query(each)]
        except QueryFailed:
            return
        await asyncio.sleep(1)


def _expressions(dashboards: Sequence[Dashboard], scaling: Mapping[str, str]) -> list[str]:
    return [
        expression
        for dashboard in dashboards
        for panel in dashboard.panels
        if panel.title not in RARE
        for expression, _ in panel.queries
    ] + list(scaling.values())


async def _ask_all(
    server: Prometheus, dashboards: Sequence[Dashboard], scaling: Mapping[str, str], findings: Findings
) -> None:
    asked = [
        (dashboard.name, panel.title, expression)
        for dashboard in dashboards
        for panel in dashboard.panels
        for expression, _ in panel.queries
    ] + [("scaling", name, expression) for name, expression in scaling.items()]
    for key in asked:
        name, title, expression = key
        try:
            series = await server.query_range(expression, findings.begin, findings.end)
        except QueryFailed as error:
            findings.problems.append(f"{name}: {title}: {expression}: {error}")
            continue
        findings.answers[key] = series
        if not series and title not in RARE:
            findings.problems.append(f"{name}: {title}: {expression}: no answer")
    findings.queries = len(asked)


async def _rule_problems(server: Prometheus) -> list[str]:
    rules = await server.rules()
    found = [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] != "ok"]
    firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
    if "ParleyWatchdog" not in firing:
        found.append("ParleyWatchdog does not fire")
    return found


def _memory(made: Installation) -> dict[str, int]:
    """The most that a process of each role holds."""
    held = dict.fromkeys(REPLICAS, 0)
    for worker in made.workers:
        if worker.process.returncode is None:
            held[worker.role] = max(held[worker.role], resident_bytes(worker.process.pid))
    return held
