"""The deployment files speak of commands, metrics, roles and settings that there are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from deploy.checks import dashboards, runbooks
from deploy.checks.alerts import CONFIGS
from deploy.checks.manifests import DRAIN_SECONDS
from tests.support.kafka.jars import POM
from workers.cli.program import program
from workers.roles.settings import ROLES, parse_duration, read_settings

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "compose.yaml").read_text("utf-8")


def roles_of(words: list[str]) -> set[str]:
    """The roles that a `serve` of these words runs; raises where the command line would not take them."""
    command: Any = typer.main.get_command(program)
    rest = [re.sub(r"\$\{[^}]*\}", "bots:app", word) for word in words]
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    context = command.make_context(command.name, rest, resilient_parsing=False)
    return set((context.params.get("roles") or "").split(",")) - {""}


@pytest.mark.rule("EN-46")
def test_dashboards_ask_for_metrics_that_workers_expose_and_show_every_one() -> None:
    assert dashboards.problems(dashboards.read_dashboards()) == []


def test_a_metric_that_no_worker_exposes_would_be_noticed() -> None:
    board = dashboards.read_dashboards()[0]
    panel = dashboards.Panel("Ghosts", "timeseries", "short", (0, 900, 8, 8), None, (("parley_ghosts", ""),))
    haunted = dashboards.Dashboard(board.name, board.title, (*board.panels, panel), board.body)

    found = dashboards.problems([haunted, *dashboards.read_dashboards()[1:]])

    assert found == [f"{board.name}: Ghosts: no worker exposes parley_ghosts"]


def test_compose_runs_every_role_with_commands_that_the_command_line_takes() -> None:
    lines = re.findall(r"^    command: (\[\"(?:serve|migrate|topics)\".*\])$", COMPOSE, re.MULTILINE)

    roles = [roles_of(json.loads(line)) for line in lines]

    assert len(lines) == 2 + len(ROLES)
    assert set().union(*roles) == set(ROLES)


def test_a_command_that_there_is_not_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        roles_of(["serve", "bots:app", "--rolls", "intake"])


def test_prometheus_scrapes_every_role() -> None:
    for config in CONFIGS:
        text = config.read_text("utf-8")

        assert all(re.search(rf"\b{role}\b", text) for role in ROLES), config.name


def test_every_command_of_the_pages_for_operators_is_one_that_the_command_line_takes() -> None:
    assert runbooks.problems() == []


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("    parley runs lust --open", "there is no command lust"),
        ("Say `parley runs list --opn`.", "No such option: --opn"),
        ("    parley runs list --limit 0", "greater than or equal to 1"),
    ],
)
def test_a_mistake_in_a_command_of_a_page_would_be_noticed(page: str, complaint: str) -> None:
    (command,) = runbooks.commands_in(page)

    assert complaint in (runbooks.refusal(command) or "")


def test_the_settings_of_the_compose_file_are_read_without_complaint(tmp_path: Path) -> None:
    url = tmp_path / "database_url"
    url.write_text("postgresql://parley:secret@postgres/parley\n", "utf-8")
    block = COMPOSE.split("x-environment: &environment\n")[1].split("\n\n")[0]
    environment = dict(re.findall(r"^  (PARLEY_\w+): \"?([^\"\n]+)\"?$", block, re.MULTILINE))

    settings = read_settings({**environment, "PARLEY_DATABASE_URL_FILE": str(url)})

    assert settings.kafka.bootstrap == "kafka:9092"
    assert settings.kafka.replication == 1


@pytest.mark.rule("EN-40")
def test_compose_gives_a_worker_the_time_that_its_drain_may_take() -> None:
    stop = re.search(r"stop_grace_period: (\w+)", COMPOSE)
    grace = re.search(r"PARLEY_GRACE: (\w+)", COMPOSE)

    assert stop is not None
    assert grace is not None
    assert parse_duration(stop[1]).total_seconds() >= parse_duration(grace[1]).total_seconds() + DRAIN_SECONDS


def test_no_password_stands_in_the_compose_file() -> None:
    secret = re.findall(r"^\s+\w*(?:PASSWORD|SECRET|TOKEN)\w*:.*$", COMPOSE, re.MULTILINE)

    assert secret
    assert all("_FILE:" in line and "/run/secrets/" in line for line in secret)


def test_compose_runs_the_broker_that_the_tests_run() -> None:
    tested = POM.read_text("utf-8").split("kafka_2.13</artifactId>")[1].split("<version>")[1].split("<")[0]

    assert f"apache/kafka:{tested}\n" in COMPOSE
