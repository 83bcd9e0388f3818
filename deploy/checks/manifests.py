"""What the Kubernetes manifests must hold beyond their schemas: hardening, references, and times that fit together."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deploy.checks.tools import Document
from workers.roles.settings import ROLES, parse_duration

DRAIN_SECONDS: Final = 10
"""What a process may take beyond `PARLEY_GRACE`: two seconds by its own word, the rest for a busy node."""


def problems(documents: Sequence[Document]) -> list[str]:
    """One line a mistake; `documents` are those of the kustomization, and the example secret."""
    pods = [each for each in documents if each.kind in ("Deployment", "Job")]
    found = [f"{each.title}: {problem}" for each in documents for problem in each.problems]
    for each in pods:
        found += [
            f"{each.title}: {problem}" for problem in _pod_problems(each.body["spec"]["template"]["spec"])
        ]
        found += [f"{each.title}: {problem}" for problem in _lost_references(each, documents)]
    for each in documents:
        if each.kind == "Deployment":
            found += [f"{each.title}: {problem}" for problem in _deployment_problems(each, documents)]
    found += [f"{each.title}: selects no pod" for each in documents if _selects_nothing(each, pods)]
    found += _scaler_problems(documents)
    found += [f"no Deployment runs {role}" for role in sorted(set(ROLES) - _roles_of(documents))]
    if not any(_denies_everything(each) for each in documents):
        found.append("no NetworkPolicy denies what is not allowed")
    return found


def settings_of(documents: Sequence[Document]) -> dict[str, str]:
    """The variables of the ConfigMap."""
    return dict(next(each for each in documents if each.kind == "ConfigMap").body["data"])


def connections(documents: Sequence[Document]) -> int:
    """Database connections of all roles at their largest: pool, hints, probe, and a lease for turns and sends."""
    pool = int(settings_of(documents)["PARLEY_POOL_SIZE"])
    most = {
        each.name: each.body["spec"]["maxReplicas"]
        for each in documents
        if each.kind == "HorizontalPodAutoscaler"
    }
    return sum(
        most.get(each.name, each.body["spec"].get("replicas", 1))
        * (pool + (3 if each.name in ("parley-turns", "parley-delivery") else 2))
        for each in documents
        if each.kind == "Deployment"
    )


def external_metrics(documents: Sequence[Document]) -> set[str]:
    """The names that the autoscalers ask the metrics adapter for."""
    return {
        metric["external"]["metric"]["name"]
        for each in documents
        if each.kind == "HorizontalPodAutoscaler"
        for metric in each.body["spec"]["metrics"]
        if metric["type"] == "External"
    }


def _roles_of(documents: Sequence[Document]) -> set[str]:
    return {each.name.removeprefix("parley-") for each in documents if each.kind == "Deployment"}


def _pod_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    context = pod.get("securityContext", {})
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        yield "may run as root"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no seccomp profile"
    if pod.get("automountServiceAccountToken") is not False:
        yield "gets a token of the cluster"
    for container in pod["containers"]:
        yield from _container_problems(container)


def _container_problems(container: Mapping[str, Any]) -> Iterator[str]:
    context, resources = container.get("securityContext", {}), container.get("resources", {})
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "may write its root file system"
    if context.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "keeps capabilities"
    for bound in ("requests", "limits"):
        if not {"cpu", "memory"} <= set(resources.get(bound, {})):
            yield f"has no {bound} of cpu and memory"


def _deployment_problems(deployment: Document, documents: Sequence[Document]) -> Iterator[str]:
    pod = deployment.body["spec"]["template"]["spec"]
    container = pod["containers"][0]
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        if container.get(probe, {}).get("httpGet", {}).get("path") != path:
            yield f"{probe} does not ask {path}"
    role = container["args"][-1]
    if role not in ROLES or deployment.name != f"parley-{role}":
        yield f"runs the role {role}"
    if not pod.get("topologySpreadConstraints"):
        yield "is not spread over nodes"
    grace = parse_duration(settings_of(documents)["PARLEY_GRACE"]).total_seconds()
    waits = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    if pod["terminationGracePeriodSeconds"] < waits + grace + DRAIN_SECONDS:
        yield f"is killed before a drain of {grace:.0f} s can end"
    owned = {each.kind for each in documents if deployment.name == each.name}
    for kind in ("PodDisruptionBudget", "HorizontalPodAutoscaler"):
        if kind not in owned and (role, kind) != ("sweeper", "HorizontalPodAutoscaler"):
            yield f"has no {kind}"


def _lost_references(workload: Document, documents: Sequence[Document]) -> Iterator[str]:
    pod = workload.body["spec"]["template"]["spec"]
    there = {(each.kind, each.name) for each in documents}
    wanted = [("ServiceAccount", pod["serviceAccountName"])]
    for container in pod["containers"]:
        wanted += [("ConfigMap", source["configMapRef"]["name"]) for source in container.get("envFrom", ())]
    wanted += [("Secret", volume["secret"]["secretName"]) for volume in pod["volumes"] if "secret" in volume]
    for kind, name in wanted:
        if (kind, name) not in there:
            yield f"{kind} {name} is not there"
    secret: dict[str, str] = next(
        (each.body["stringData"] for each in documents if each.kind == "Secret"), {}
    )
    mount = next(
        each["mountPath"] for each in pod["containers"][0]["volumeMounts"] if each["name"] == "secrets"
    )
    for name, value in settings_of(documents).items():
        if name.endswith("_FILE") and value.removeprefix(f"{mount}/") not in secret:
            yield f"{name} is no file of the secret"


def _selects_nothing(document: Document, pods: Sequence[Document]) -> bool:
    spec = document.body.get("spec", {})
    match document.kind:
        case "Service":
            selector = spec["selector"]
        case "PodDisruptionBudget":
            selector = spec["selector"]["matchLabels"]
        case "NetworkPolicy":
            selector = spec["podSelector"].get("matchLabels", {})
        case _:
            return False
    labels = [each.body["spec"]["template"]["metadata"]["labels"] for each in pods]
    return not any(selector.items() <= these.items() for these in labels)


def _scaler_problems(documents: Sequence[Document]) -> Iterator[str]:
    deployments = {each.name for each in documents if each.kind == "Deployment"}
    partitions = int(settings_of(documents)["PARLEY_TOPIC_PARTITIONS"])
    for each in documents:
        if each.kind not in ("HorizontalPodAutoscaler", "ScaledObject"):
            continue
        spec = each.body["spec"]
        target = spec["scaleTargetRef"]["name"]
        if target not in deployments:
            yield f"{each.title}: scales {target}, which is not there"
        most = spec.get("maxReplicas") or spec.get("maxReplicaCount")
        if target in ("parley-intake", "parley-delivery") and most > partitions:
            yield f"{each.title}: more replicas than the {partitions} partitions"


def _denies_everything(document: Document) -> bool:
    return document.kind == "NetworkPolicy" and document.body["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }
