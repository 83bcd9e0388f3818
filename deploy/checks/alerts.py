"""What the alerts must hold beyond their syntax: metrics that exist, a page each, a test each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.checks.tools import DEPLOY, ROOT, read_yaml, run
from workers.telemetry.metrics import Metrics

ALERTS: Final = DEPLOY / "prometheus/alerts.yml"
TESTS: Final = DEPLOY / "prometheus/alerts.test.yml"
CONFIGS: Final = (DEPLOY / "prometheus/prometheus.yml", DEPLOY / "prometheus/prometheus.kubernetes.yml")
SEVERITIES: Final = ("page", "ticket", "none")
SECTIONS: Final = ("## Look", "## Do", "## Leave it when")
METRIC: Final = re.compile(r"\bparley_[a-z_]+")


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule as it stands in the file."""

    name: str
    expression: str
    labels: dict[str, str]
    annotations: dict[str, str]

    @property
    def page(self) -> Path:
        """What its `runbook_url` names."""
        return ROOT / self.annotations.get("runbook_url", "")


def metric_names() -> set[str]:
    """Every sample name that a worker can expose."""
    names = set()
    for metric in Metrics().describe():
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {f"{metric.name}{suffix}" for suffix in suffixes}
    return names


def alerts_of(document: dict[str, Any]) -> list[Alert]:
    """The alerts of a rule file."""
    return [
        Alert(rule["alert"], rule["expr"], rule.get("labels", {}), rule.get("annotations", {}))
        for group in document["groups"]
        for rule in group["rules"]
    ]


def read_alerts() -> list[Alert]:
    """The alerts of the project. Raises Failed."""
    return alerts_of(read_yaml([ALERTS])[0].body)


def problems(alerts: Sequence[Alert], tests: str) -> list[str]:
    """One line a mistake; `tests` is the text of promtool's test file."""
    there = metric_names()
    found = [f"{alert.name}: {problem}" for alert in alerts for problem in _alert_problems(alert, there)]
    found += [f"{alert.name}: no scenario lets it fire" for alert in alerts if f'"{alert.name}"' not in tests]
    pages = {page.stem for page in (ROOT / "docs/runbooks").glob("Parley*.md")}
    found += [
        f"docs/runbooks/{name}.md: there is no such alert"
        for name in sorted(pages - {a.name for a in alerts})
    ]
    return found


def ask_promtool() -> str:
    """Let promtool check rules and configurations and run the scenarios. Raises Failed."""
    for config in CONFIGS:
        run(["promtool", "check", "config", config])
    run(["promtool", "check", "rules", ALERTS])
    run(["promtool", "test", "rules", TESTS])
    scenarios = TESTS.read_text("utf-8").count("\n  - name: ")
    return f"{len(CONFIGS)} configurations, {scenarios} scenarios"


def _alert_problems(alert: Alert, there: set[str]) -> Iterator[str]:
    for name in sorted(set(METRIC.findall(alert.expression)) - there):
        yield f"no worker exposes {name}"
    if alert.labels.get("severity") not in SEVERITIES:
        yield f"its severity is none of {', '.join(SEVERITIES)}"
    if not alert.annotations.get("summary"):
        yield "says nothing"
    if not alert.page.is_file() or alert.page.stem != alert.name:
        yield "has no runbook page"
        return
    text = alert.page.read_text("utf-8")
    if [line for line in text.splitlines() if line.startswith("## ")] != list(SECTIONS):
        yield f"its page has not the sections {', '.join(SECTIONS)}"
