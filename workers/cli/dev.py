"""`parley dev` and `parley demo`: everything on this machine, with nothing to install, for development only."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from workers.cli.edge import FAILED, explained, run
from workers.cli.output import print_line

if TYPE_CHECKING:
    from workers.app import App

_WIDE: Final = 120


class Part(StrEnum):
    """What `--break` can take out."""

    DEDUPE = "dedupe"
    RECOVER = "recover"
    RECONCILE = "reconcile"
    RECALL = "recall"


def dev(
    target: str | None = typer.Argument(
        None,
        metavar="MODULE:APP",
        help="Your App, as package.module:name; without one, a helper to chat with.",
    ),
    port: int = typer.Option(8080, min=0, max=65535, help="Where the chat page is; 0 takes a free port."),
    data: Path = typer.Option(Path(".parley"), help="Where Postgres keeps its data."),
    model: str | None = typer.Option(
        None,
        help="The helper's model, as openai:gpt-4.1-mini; without one it follows a script and needs no key.",
    ),
) -> None:
    """Run an app with embedded Postgres and broker, and a chat in the browser, until ctrl-c."""
    if target is not None and model is not None:
        raise typer.BadParameter("--model is for the helper; your own app names its models")
    with explained():
        _dev(target, port, data.absolute(), model)


def demo(
    broken: Part | None = typer.Option(
        None, "--break", help="Take one part out of the demo's worker: the matching check must fail."
    ),
) -> None:
    """One conversation on real parts, with a killed worker and a dropped connection; exit 0 if every check holds."""
    from rich.console import Console

    from workers.embedded.demo import run_demo

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDE
    if not run(run_demo(broken.value if broken is not None else None, console)):
        raise typer.Exit(FAILED)


def _dev(target: str | None, port: int, data: Path, model: str | None) -> None:
    from workers.cli.loading import load_app
    from workers.cli.serve import run_until_signalled, run_worker
    from workers.embedded.dev import dev_worker, helper_app, quieten_libraries
    from workers.embedded.installed import require_embedded
    from workers.kafka.logs import bound_client_logs
    from workers.telemetry.logging import configure

    require_embedded()
    configure("INFO", json=False)
    bound_client_logs()
    quieten_libraries()
    app = load_app(target) if target is not None else helper_app(data, model)

    async def live() -> None:
        print_line(f"starting Postgres and a broker; data in {data}")
        async with dev_worker(app, data, port, lambda taken, url: _say_where(app, taken, url)) as worker:
            await run_until_signalled(worker)

    run_worker(live())
    print_line("stopped")


def _say_where(app: "App", port: int, database_url: str) -> None:
    from workers.channels.web import WebChannel
    from workers.channels.webhook import WebhookChannel

    at = f"http://127.0.0.1:{port}"
    page = any(isinstance(channel, WebChannel) for channel in app.channels.values())
    hooks = [name for name, channel in app.channels.items() if isinstance(channel, WebhookChannel)]
    print_line("")
    if page:
        print_line(f"  {app.name} is at {at}/")
    for name in hooks:
        print_line(f"  {app.name} takes webhooks at {at}/channels/{name}/webhook")
    if not page and not hooks:
        print_line(f"  {app.name} has no channel that can be reached over HTTP")
    print_line(f"  health: {at}/readyz   metrics: {at}/metrics")
    print_line(f"  for parley's other commands: export PARLEY_DATABASE_URL={database_url}")
    print_line("  stop with ctrl-c")
    print_line("  for development only: the broker keeps its records in memory, and nobody has to log in")
    print_line("")
