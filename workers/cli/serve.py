"""`parley serve`: run the roles of an app until told to stop.

The first SIGTERM or SIGINT drains: nothing new is taken, what runs is finished or released within the grace period.
The second one ends the process at once; what it held is taken over by the others.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from workers.cli.edge import explained

if TYPE_CHECKING:
    from workers.roles.settings import Role, Settings
    from workers.roles.worker import Worker

Target = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as package.module:name.")
]
SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LEAVE_WITHIN_SECONDS: Final = 2.0


def serve(
    target: Target,
    roles: str | None = typer.Option(
        None, help="Comma-separated: intake, turns, delivery, api, sweeper. Default: all."
    ),
    host: str | None = typer.Option(None, help="Address for health, metrics and the API."),
    port: int | None = typer.Option(None, min=0, max=65535, help="Its port."),
) -> None:
    """Run an app's worker until SIGTERM or SIGINT; settings come from PARLEY_* variables."""
    with explained():
        _serve(target, roles, host, port)


def _serve(target: str, roles: str | None, host: str | None, port: int | None) -> None:
    from workers.cli.loading import load_app
    from workers.kafka.logs import bound_client_logs
    from workers.roles.worker import Worker
    from workers.telemetry.logging import configure

    settings = _settings(roles, host, port)
    app = load_app(target)
    configure(settings.log_level.upper(), json=settings.log_json, final=True)
    client_logs = bound_client_logs()

    async def live() -> None:
        worker = Worker(app, settings)
        worker.metrics.log_lines_held_back.set_function(lambda: client_logs.suppressed)
        await run_until_signalled(worker)

    run_worker(live())


def run_worker(live: Coroutine[Any, Any, None]) -> None:
    """Run a worker to its end; the process leaves soon after it, whatever its agents still hold on to."""
    import uvloop

    from workers.roles.worker import PartFailed

    runner, code = asyncio.Runner(loop_factory=uvloop.new_event_loop), 0
    try:
        with explained():
            try:
                runner.run(live)
            except PartFailed as failed:
                cause = failed.__cause__
                if isinstance(cause, Exception):
                    raise cause from failed
                raise
    except typer.Exit as ended:
        code = ended.exit_code
        raise
    finally:
        # Closing waits for all tasks and threads, and an agent may have swallowed its cancellation.
        leaving = threading.Timer(_LEAVE_WITHIN_SECONDS, os._exit, [code])
        leaving.daemon = True
        leaving.start()
        runner.close()
        leaving.cancel()


def _settings(roles: str | None, host: str | None, port: int | None) -> "Settings":
    from workers.roles.settings import read_settings

    overrides: dict[str, object] = {} if roles is None else {"roles": _roles(roles)}
    if host is not None:
        overrides["http_host"] = host
    if port is not None:
        overrides["http_port"] = port
    return read_settings(None, **overrides)


def _roles(written: str) -> "frozenset[Role]":
    from workers.roles.settings import ROLES

    words = {word.strip() for word in written.split(",") if word.strip()}
    if not words or not words <= set(ROLES):
        wrong = ", ".join(sorted(words - set(ROLES))) or "nothing"
        raise typer.BadParameter(f"--roles names {wrong}, and the roles are {', '.join(ROLES)}")
    return frozenset(role for role in ROLES if role in words)


async def run_until_signalled(worker: "Worker") -> None:
    """Start the worker and return when it has drained, by a signal or by itself."""
    from workers.roles.process import settle_garbage_collector

    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def stop(number: int) -> None:
        if asked.is_set():
            os._exit(128 + number)
        asked.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)

    async def drain_when_asked() -> None:
        await asked.wait()
        await worker.drain()

    await worker.start()
    settle_garbage_collector()
    draining = asyncio.create_task(drain_when_asked(), name="drain-when-asked")
    try:
        await worker.run_until_stopped()
    finally:
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
