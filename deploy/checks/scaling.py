"""What the autoscalers ask for: the adapter's rules and KEDA's triggers as expressions that fit together."""

from collections.abc import Mapping, Sequence
from typing import Final

from deploy.checks.alerts import METRIC, metric_names
from deploy.checks.manifests import external_metrics
from deploy.checks.tools import DEPLOY, Document

ADAPTER: Final = DEPLOY / "prometheus/adapter.yml"
KEDA: Final = DEPLOY / "kubernetes/keda/scaledobjects.yaml"


def adapter_expressions(adapter: Document) -> dict[str, str]:
    """By external metric, the expression that the adapter sends to Prometheus."""
    found = {}
    for rule in adapter.body["externalRules"]:
        series = rule["seriesQuery"].partition("{")[0]
        found[rule["name"]["as"]] = rule["metricsQuery"].replace("<<.Series>>", series)
    return found


def keda_expressions(documents: Sequence[Document]) -> dict[str, str]:
    """By scaled object and number of its trigger, the expression that KEDA sends to Prometheus."""
    return {
        f"{each.name}-{number}": trigger["metadata"]["query"]
        for each in documents
        if each.kind == "ScaledObject"
        for number, trigger in enumerate(each.body["spec"]["triggers"])
    }


def problems(documents: Sequence[Document], adapter: Mapping[str, str], keda: Mapping[str, str]) -> list[str]:
    """One line a mistake."""
    wanted, there = external_metrics(documents), metric_names()
    found = [f"autoscaling.yaml: the adapter has no {name}" for name in sorted(wanted - set(adapter))]
    found += [f"adapter.yml: nobody asks for {name}" for name in sorted(set(adapter) - wanted)]
    found += [
        f"{name}: no worker exposes {metric}"
        for name, expression in {**adapter, **keda}.items()
        for metric in METRIC.findall(expression)
        if metric not in there
    ]
    if set(keda.values()) != set(adapter.values()):
        found.append("scaledobjects.yaml: KEDA asks for something else than the adapter")
    return found
