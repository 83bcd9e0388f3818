"""All commands, by name."""

import typer

from workers.cli import (
    check,
    conversations,
    dead,
    deliveries,
    dev,
    doctor,
    migrate,
    operators,
    pauses,
    prune,
    publish,
    reservations,
    runs,
    serve,
    topics,
)

program = typer.Typer(
    name="parley",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Runs AI agents behind chat channels.",
    epilog="Exit codes: 0 done; 1 refused, not found or misconfigured; 2 wrong usage; 3 Kafka or Postgres is away.",
)
program.command()(serve.serve)
program.command()(dev.dev)
program.command()(dev.demo)
program.command()(check.check)
program.command()(doctor.doctor)
program.command()(migrate.migrate)
program.command()(publish.publish)
program.command()(prune.prune)
program.command("pauses")(pauses.list_pauses)
program.add_typer(pauses.pause, name="pause")
program.add_typer(pauses.resume, name="resume")
program.add_typer(topics.group, name="topics")
program.add_typer(runs.group, name="runs")
program.add_typer(deliveries.group, name="deliveries")
program.add_typer(dead.group, name="dead")
program.add_typer(reservations.group, name="reservations")
program.add_typer(conversations.group, name="conversations")
program.add_typer(operators.group, name="operators")
