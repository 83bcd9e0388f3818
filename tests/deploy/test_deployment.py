"""The deployment files speak of commands, metrics and settings that there are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.kafka.jars import POM
from workers.cli.program import program
from workers.roles.settings import ROLES, read_settings
from workers.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "compose.yaml").read_text("utf-8")
METRIC = re.compile(r"\bparley_[a-z_]+")


def metric_names() -> set[str]:
    """Every sample name that a worker can expose."""
    names = set()
    for metric in Metrics().describe():
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {f"{metric.name}{suffix}" for suffix in suffixes}
    return names


def expressions(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_each_metric_of_the_dashboard_and_of_the_alerts_is_one_that_workers_expose() -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/parley.json").read_text("utf-8"))
    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8")
    asked = set(METRIC.findall("\n".join(expressions(dashboard["panels"]))))
    asked |= {name for line in alerts.splitlines() if "expr:" in line for name in METRIC.findall(line)}

    assert len(asked) > 20
    assert asked <= metric_names()


def test_each_command_of_the_compose_file_is_one_that_the_command_line_takes() -> None:
    lines = re.findall(r"^    command: (\[\"(?:serve|migrate|topics)\".*\])$", COMPOSE, re.MULTILINE)
    commands = [json.loads(line) for line in lines]
    root = typer.main.get_command(program)

    assert len(commands) == 6
    for words in commands:
        command: Any = root
        rest = [re.sub(r"\$\{[^}]*\}", "bots:app", word) for word in words]
        while hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        context = command.make_context(command.name, rest, resilient_parsing=False)
        assert set((context.params.get("roles") or "api").split(",")) <= set(ROLES)


def test_a_command_that_there_is_not_would_be_noticed() -> None:
    root: Any = typer.main.get_command(program)

    with pytest.raises(Exception, match="No such option"):
        root.commands["serve"].make_context("serve", ["bots:app", "--rolls", "intake"])


def test_the_settings_of_the_compose_file_are_read_without_complaint(tmp_path: Path) -> None:
    url = tmp_path / "database_url"
    url.write_text("postgresql://parley:secret@postgres/parley\n", "utf-8")
    block = COMPOSE.split("x-environment: &environment\n")[1].split("\n\n")[0]
    environment = dict(re.findall(r"^  (PARLEY_\w+): \"?([^\"\n]+)\"?$", block, re.MULTILINE))

    settings = read_settings({**environment, "PARLEY_DATABASE_URL_FILE": str(url)})

    assert settings.kafka.bootstrap == "kafka:9092"
    assert settings.kafka.replication == 1


def test_no_password_stands_in_the_compose_file() -> None:
    secret = re.findall(r"^\s+\w*(?:PASSWORD|SECRET|TOKEN)\w*:.*$", COMPOSE, re.MULTILINE)

    assert secret
    assert all("_FILE:" in line and "/run/secrets/" in line for line in secret)


def test_compose_runs_the_broker_that_the_tests_run() -> None:
    tested = POM.read_text("utf-8").split("kafka_2.13</artifactId>")[1].split("<version>")[1].split("<")[0]

    assert f"apache/kafka:{tested}\n" in COMPOSE
