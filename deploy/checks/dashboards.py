"""The dashboards as a list of queries, and what must hold of them before they meet a Prometheus."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.checks.alerts import METRIC, metric_names
from deploy.checks.tools import DEPLOY
from workers.telemetry.metrics import Metrics

FOLDER: Final = DEPLOY / "grafana/dashboards"
DATASOURCE: Final = "prometheus"
COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: `queries` are (expression, legend) pairs, `unit` is Grafana's word, `red` where it begins to be bad.

    `place` is (x, y, width, height) on Grafana's grid; a row of the dashboard is a panel without queries.
    """

    title: str
    kind: str
    unit: str
    place: tuple[int, int, int, int]
    red: float | None
    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One file: its panels in the order in which they are seen."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    body: dict[str, Any]


def read_dashboards() -> list[Dashboard]:
    """Every dashboard that is provisioned."""
    return [_read(path) for path in sorted(FOLDER.glob("*.json"))]


def problems(dashboards: Sequence[Dashboard]) -> list[str]:
    """One line a mistake: unknown metrics, metrics that nobody can see, panels over one another."""
    there, found, shown = metric_names(), [], set()
    for dashboard in dashboards:
        for panel in dashboard.panels:
            for expression, _ in panel.queries:
                asked = set(METRIC.findall(expression))
                shown |= asked
                found += [
                    f"{dashboard.name}: {panel.title}: no worker exposes {name}" for name in asked - there
                ]
        found += [f"{dashboard.name}: {problem}" for problem in _layout_problems(dashboard.body)]
    for metric in Metrics().describe():
        if not any(name == metric.name or name.startswith(f"{metric.name}_") for name in shown):
            found.append(f"no dashboard shows {metric.name}")
    if len({dashboard.body["uid"] for dashboard in dashboards}) < len(dashboards):
        found.append("two dashboards have one uid")
    return found


def _read(path: Path) -> Dashboard:
    body = json.loads(path.read_text("utf-8"))
    return Dashboard(path.stem, body["title"], tuple(map(_panel, body["panels"])), body)


def _panel(body: dict[str, Any]) -> Panel:
    defaults, place = body.get("fieldConfig", {}).get("defaults", {}), body["gridPos"]
    steps = defaults.get("thresholds", {}).get("steps", ())
    return Panel(
        title=body["title"],
        kind=body["type"],
        unit=defaults.get("unit", ""),
        place=(place["x"], place["y"], place["w"], place["h"]),
        red=next((step["value"] for step in steps if step["color"] == "red"), None),
        queries=tuple((target["expr"], target["legendFormat"]) for target in body.get("targets", ())),
    )


def _layout_problems(body: dict[str, Any]) -> list[str]:
    found: list[str] = []
    taken: set[tuple[int, int]] = set()
    numbers = [panel["id"] for panel in body["panels"]]
    if len(set(numbers)) < len(numbers):
        found.append("two panels have one id")
    for panel in body["panels"]:
        place, sources = panel["gridPos"], [panel, *panel.get("targets", ())]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        if cells & taken or place["x"] + place["w"] > COLUMNS:
            found.append(f"{panel['title']} lies over another panel")
        taken |= cells
        if panel["type"] != "row" and any(each["datasource"]["uid"] != DATASOURCE for each in sources):
            found.append(f"{panel['title']} asks a data source that is not provisioned")
    return found
