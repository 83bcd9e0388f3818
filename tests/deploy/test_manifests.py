"""The Kubernetes manifests hold by their schemas and against one another; a mistake in them would be noticed."""

import copy
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from deploy.checks import alerts, manifests, scaling
from deploy.checks.__main__ import check_images, check_manifests, read_manifests
from deploy.checks.tools import DEPLOY, Document, Failed, missing, read_yaml
from workers.roles.settings import ROLES, read_settings


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    """What reads YAML lives in an environment of its own, made once from its lock."""
    try:
        subprocess.run([DEPLOY / "lint.sh", "environment"], check=True, capture_output=True, timeout=170)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"deploy/.venv cannot be made here: {error}")


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """The manifests as they stand."""
    return read_manifests()


def changed(
    documents: list[Document], kind: str, name: str, change: Callable[[dict[str, Any]], object]
) -> list[Document]:
    """The same documents with one of them changed."""
    found = copy.deepcopy(documents)
    (wanted,) = (each for each in found if (each.kind, each.name) == (kind, name))
    change(wanted.body)
    return found


def container(body: dict[str, Any]) -> dict[str, Any]:
    (only,) = body["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_the_manifests_are_right_by_their_schemas_and_rules() -> None:
    found, looked_at = check_manifests()

    assert found == []
    assert "objects by the schemas of Kubernetes" in looked_at


def test_image_and_compose_file_are_lint_free() -> None:
    found, _ = check_images()

    assert found == ()


@pytest.mark.parametrize(
    ("kind", "name", "change", "complaint"),
    [
        (
            "Deployment",
            "parley-turns",
            lambda body: body["spec"]["template"]["spec"].update(terminationGracePeriodSeconds=30),
            "is killed before a drain of 30 s can end",
        ),
        (
            "Deployment",
            "parley-api",
            lambda body: container(body)["securityContext"].pop("readOnlyRootFilesystem"),
            "may write its root file system",
        ),
        (
            "Deployment",
            "parley-intake",
            lambda body: container(body)["livenessProbe"]["httpGet"].update(path="/readyz"),
            "livenessProbe does not ask /healthz",
        ),
        (
            "ConfigMap",
            "parley",
            lambda body: body["data"].update(PARLEY_KAFKA_CA_FILE="/run/secrets/parley/no_such_file"),
            "PARLEY_KAFKA_CA_FILE is no file of the secret",
        ),
        (
            "Service",
            "parley-api",
            lambda body: body["spec"]["selector"].update({"app.kubernetes.io/component": "web"}),
            "selects no pod",
        ),
        (
            "HorizontalPodAutoscaler",
            "parley-intake",
            lambda body: body["spec"].update(maxReplicas=13),
            "more replicas than the 12 partitions",
        ),
        (
            "NetworkPolicy",
            "parley-nothing",
            lambda body: body["spec"].update(policyTypes=["Ingress"]),
            "no NetworkPolicy denies what is not allowed",
        ),
    ],
)
def test_a_mistake_in_a_manifest_would_be_noticed(
    documents: list[Document],
    kind: str,
    name: str,
    change: Callable[[dict[str, Any]], object],
    complaint: str,
) -> None:
    found = manifests.problems(changed(documents, kind, name, change))

    assert any(complaint in line for line in found), found


def test_a_field_that_kubernetes_does_not_know_would_be_noticed(tmp_path: Any) -> None:
    wrong = tmp_path / "wrong.yaml"
    text = (DEPLOY / "kubernetes/autoscaling.yaml").read_text("utf-8")
    wrong.write_text(text.replace("  minReplicas:", "  leastReplicas: 1\n  minReplicas:"), "utf-8")

    problems = [problem for each in read_yaml([wrong], ["1.33"]) for problem in each.problems]

    assert any("leastReplicas" in problem for problem in problems)


def test_an_external_metric_that_the_adapter_does_not_serve_would_be_noticed(
    documents: list[Document],
) -> None:
    adapter = scaling.adapter_expressions(read_yaml([scaling.ADAPTER])[0])
    keda = scaling.keda_expressions(documents)
    less = {name: expression for name, expression in adapter.items() if name != "parley_queue_depth"}

    assert "autoscaling.yaml: the adapter has no parley_queue_depth" in scaling.problems(
        documents, less, keda
    )


def test_the_settings_of_the_config_map_are_read_without_complaint(
    documents: list[Document], tmp_path: Any
) -> None:
    settings = manifests.settings_of(documents)
    secret = next(each.body["stringData"] for each in documents if each.kind == "Secret")
    for name, text in secret.items():
        (tmp_path / name).write_text(text, "utf-8")
    here = {name: value.replace("/run/secrets/parley", str(tmp_path)) for name, value in settings.items()}

    read = read_settings(here)

    assert read.kafka.replication == 3
    assert read.roles == frozenset(ROLES)


@pytest.mark.rule("EN-41")
def test_the_page_on_sizing_counts_the_database_connections_of_all_roles_at_their_largest(
    documents: list[Document],
) -> None:
    page = (DEPLOY.parent / "docs/sizing.md").read_text("utf-8")

    assert f"hold {manifests.connections(documents)} connections" in page


def test_alerts_name_metrics_that_there_are_and_have_a_page_and_a_test_each() -> None:
    assert alerts.problems(alerts.read_alerts(), alerts.TESTS.read_text("utf-8")) == []


def test_an_alert_without_page_test_and_metric_would_be_noticed() -> None:
    ghost = alerts.Alert("ParleyGhosts", "parley_ghosts > 0", {"severity": "page"}, {"summary": "Boo"})

    found = alerts.problems([*alerts.read_alerts(), ghost], alerts.TESTS.read_text("utf-8"))

    assert found == [
        "ParleyGhosts: no worker exposes parley_ghosts",
        "ParleyGhosts: has no runbook page",
        "ParleyGhosts: no scenario lets it fire",
    ]


def test_promtool_finds_the_rules_right_and_every_scenario_as_it_says() -> None:
    if why := missing("promtool"):
        pytest.skip(why)

    assert "scenarios" in alerts.ask_promtool()


def test_promtool_would_notice_a_scenario_that_does_not_hold(tmp_path: Any, monkeypatch: Any) -> None:
    if why := missing("promtool"):
        pytest.skip(why)
    wrong = tmp_path / "alerts.test.yml"
    text = alerts.TESTS.read_text("utf-8").replace("[alerts.yml]", f"[{alerts.ALERTS}]")
    wrong.write_text(text.replace("values: '200x40'", "values: '20x40'"), "utf-8")
    monkeypatch.setattr(alerts, "TESTS", wrong)

    with pytest.raises(Failed, match="ParleyQueueIsOld"):
        alerts.ask_promtool()
