"""`make deploy-check`: every check, one line each; exit 1 where one failed or a program is missing.

`--quick` leaves out the run under load; `--draw FOLDER` writes the pictures of the dashboards there.
"""

import argparse
import asyncio
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.checks import alerts, dashboards, manifests, runbooks, scaling
from deploy.checks.tools import DEPLOY, KUBERNETES_VERSIONS, Document, missing, read_yaml, run

_MANIFESTS: Final = DEPLOY / "kubernetes"
_LIVE_TOOLS: Final = ("prometheus", "java", "mvn")
_MIB: Final = 1024 * 1024

Check = Callable[[], tuple[Sequence[str], str]]
"""Gives what is wrong, and what was looked at."""


def check_images() -> tuple[Sequence[str], str]:
    """The image file and the compose file."""
    run([DEPLOY / "lint.sh"])
    return (), "deploy/Dockerfile by hadolint, compose.yaml by the compose schema, the shell scripts"


def check_manifests() -> tuple[Sequence[str], str]:
    """The manifests against the schemas of several versions, and against one another."""
    documents = read_manifests()
    adapter = scaling.adapter_expressions(read_yaml([scaling.ADAPTER])[0])
    keda = scaling.keda_expressions(documents)
    found = [*manifests.problems(documents), *scaling.problems(documents, adapter, keda)]
    listed = next(each for each in documents if each.kind == "Kustomization").body["resources"]
    files = {path.name for path in _MANIFESTS.glob("*.yaml")} - {"kustomization.yaml", "secret.example.yaml"}
    found += [f"kustomization.yaml does not list {name}" for name in sorted(files - set(listed))]
    validated = sum(each.validated > 0 for each in documents)
    return (
        found,
        f"{validated} objects by the schemas of Kubernetes {', '.join(KUBERNETES_VERSIONS)}, and their rules",
    )


def check_alerts() -> tuple[Sequence[str], str]:
    """The alerts, their tests, their pages, and the commands on these pages."""
    rules = alerts.read_alerts()
    found = [*alerts.problems(rules, alerts.TESTS.read_text("utf-8")), *runbooks.problems()]
    commands = sum(len(runbooks.commands_in(page.read_text("utf-8"))) for page in runbooks.pages())
    return found, f"{len(rules)} alerts with a page each, {commands} commands on the pages"


def check_promtool() -> tuple[Sequence[str], str]:
    """What promtool says."""
    return (), f"{alerts.ask_promtool()} by promtool"


def check_dashboards() -> tuple[Sequence[str], str]:
    """The dashboards before they meet a Prometheus."""
    found = dashboards.read_dashboards()
    panels = sum(bool(panel.queries) for dashboard in found for panel in dashboard.panels)
    return dashboards.problems(found), f"{len(found)} dashboards, {panels} panels, every metric shown"


def check_run(draw: Path | None) -> tuple[Sequence[str], str]:
    """Every query against a real Prometheus over a real run."""
    from deploy.checks.live.picture import draw as drawn
    from deploy.checks.live.run import look

    boards, documents = dashboards.read_dashboards(), read_manifests()
    asked = scaling.adapter_expressions(read_yaml([scaling.ADAPTER])[0]) | scaling.keda_expressions(documents)
    findings = asyncio.run(look(boards, asked))
    if draw is not None:
        draw.mkdir(parents=True, exist_ok=True)
        for board in boards:
            (draw / f"dashboard-{board.name}.svg").write_text(drawn(board, findings), "utf-8")
    held = ", ".join(f"{role} {size // _MIB} MiB" for role, size in findings.memory.items())
    seconds = findings.end - findings.begin
    return findings.problems, (
        f"{findings.queries} queries and every alert by a Prometheus over a run of {seconds:.0f} s "
        f"({findings.events} events; {held})"
    )


def read_manifests() -> list[Document]:
    """Everything of deploy/kubernetes, checked by its schemas. Raises Failed."""
    return read_yaml([*sorted(_MANIFESTS.glob("*.yaml")), scaling.KEDA], KUBERNETES_VERSIONS)


def report(name: str, check: Check, tools: Sequence[str] = ()) -> bool:
    """Run a check and print its lines; True where all is well."""
    if gone := [line for tool in tools if (line := missing(tool))]:
        sys.stdout.write("".join(f"MISSING  {name}: not checked, {line}\n" for line in gone))
        return False
    try:
        found, looked_at = check()
    except Exception as error:
        found, looked_at = [f"{type(error).__name__}: {error}"], ""
    if found:
        sys.stdout.write("".join(f"FAILED   {name}: {line}\n" for line in found))
    else:
        sys.stdout.write(f"ok       {name}: {looked_at}\n")
    sys.stdout.flush()
    return not found


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.checks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the run under load")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="where to draw the dashboards")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", "XDG_RUNTIME_DIR is not set")
    well = [
        report("image and compose", check_images, ["flock"]),
        report("kubernetes", check_manifests, ["flock"]),
        report("alerts", check_alerts, ["flock"]),
        report("prometheus", check_promtool, ["promtool"]),
        report("dashboards", check_dashboards),
    ]
    if not options.quick:
        well.append(report("run", lambda: check_run(options.draw), _LIVE_TOOLS))
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
