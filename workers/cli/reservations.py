"""`parley reservations`: list, show, release."""

import typer

from workers.cli.edge import run
from workers.cli.output import plain, print_fields, print_json, print_line, print_table
from workers.cli.usage import AtMost, Json

group = typer.Typer(no_args_is_help=True, help="Look at reservations and free one whose run is gone.")


@group.command("list")
def list_(
    agent: str | None = typer.Option(None, help="Only reservations of this agent."),
    orphans: bool = typer.Option(False, "--orphans", help="Only those with neither a run nor an outcome."),
    at_most: AtMost = 50,
    as_json: Json = False,
) -> None:
    """The newest reservations, newest first."""
    run(_list(agent, orphans, at_most, as_json))


@group.command()
def show(reservation_id: int, as_json: Json = False) -> None:
    """One reservation with the state of its run."""
    run(_show(reservation_id, as_json))


@group.command()
def release(
    reservation_id: int,
    again: bool = typer.Option(
        False, "--again", help="Also where its run has ended: the event may run twice."
    ),
    as_json: Json = False,
) -> None:
    """Free a reservation, so that its event is admitted when it comes again. Refused while its run is open. Audited."""
    run(_release(reservation_id, again, as_json))


async def _list(agent: str | None, orphans: bool, at_most: int, as_json: bool) -> None:
    from workers.cli.connect import open_database
    from workers.operations.reservations import list_reservations

    async with open_database() as database:
        lines = await list_reservations(database, agent=agent, orphans_only=orphans, at_most=at_most)
    if as_json:
        print_json(lines)
        return
    print_table(
        ("reservation", "agent", "channel", "event", "run", "run status", "outcome", "created", "expires"),
        [
            (
                line.reservation_id,
                line.agent,
                line.channel,
                line.event_id,
                line.run_id,
                line.run_status or "missing",
                line.outcome,
                line.created_at,
                line.expires_at,
            )
            for line in lines
        ],
        "no such reservations",
    )


async def _show(reservation_id: int, as_json: bool) -> None:
    from workers.cli.connect import open_database
    from workers.operations.reservations import show_reservation

    async with open_database() as database:
        line = await show_reservation(database, reservation_id)
    if as_json:
        print_json(line)
        return
    print_fields(plain(line))


async def _release(reservation_id: int, again: bool, as_json: bool) -> None:
    from workers.cli.connect import open_database, operator
    from workers.operations import reservations

    async with open_database() as database:
        released = await reservations.release(database, reservation_id, operator(), again=again)
    if as_json:
        print_json(released)
        return
    print_line(
        f"released reservation {reservation_id}: event {released.event_id} of channel {released.channel} "
        f"is admitted for {released.agent} when it comes again"
    )
