"""`parley deliveries`: list, show, redeliver, mark-sent, abandon."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

import typer

from workers.cli.edge import run
from workers.cli.output import plain, print_fields, print_json, print_line, print_table
from workers.cli.usage import AtMost, Json, identifier

if TYPE_CHECKING:
    from workers.postgres.database import Database

group = typer.Typer(no_args_is_help=True, help="Look at deliveries and decide what nobody else can.")


@group.command("list")
def list_(
    state: list[str] | None = typer.Option(
        None, help="Only these states: pending, sending, sent, failed, ..."
    ),
    channel: str | None = typer.Option(None, help="Only this channel."),
    run_id: str | None = typer.Option(None, "--run", help="Only those of this run."),
    before: str | None = typer.Option(None, help="Only those before this delivery: the next page."),
    at_most: AtMost = 50,
    as_json: Json = False,
) -> None:
    """The newest deliveries, newest first; no message text."""
    of_run = None if run_id is None else identifier(run_id, "run")
    after_page = None if before is None else identifier(before, "delivery")
    run(_list(state or [], channel, of_run, after_page, at_most, as_json))


@group.command()
def show(delivery_id: str, as_json: Json = False) -> None:
    """One delivery with its attempt log."""
    run(_show(identifier(delivery_id, "delivery"), as_json))


@group.command()
def redeliver(delivery_id: str, as_json: Json = False) -> None:
    """Send a failed or unknown delivery again under the same key. Audited."""
    from workers.operations import deliveries

    run(_act(deliveries.redeliver, identifier(delivery_id, "delivery"), "pending again", as_json))


@group.command("mark-sent")
def mark_sent(
    delivery_id: str,
    provider_id: str | None = typer.Option(None, help="The channel's own id of the message, if known."),
    as_json: Json = False,
) -> None:
    """Say that a failed, unknown or uncertain delivery did arrive. Audited."""
    from workers.operations import deliveries

    async def act(database: "Database", delivery: UUID, actor: str) -> None:
        await deliveries.mark_sent(database, delivery, actor, provider_id)

    run(_act(act, identifier(delivery_id, "delivery"), "marked sent", as_json))


@group.command()
def abandon(delivery_id: str, as_json: Json = False) -> None:
    """Never send a pending, uncertain or unknown delivery (again). Audited."""
    from workers.operations import deliveries

    run(_act(deliveries.abandon, identifier(delivery_id, "delivery"), "abandoned", as_json))


async def _list(
    states: list[str],
    channel: str | None,
    run_id: UUID | None,
    before: UUID | None,
    at_most: int,
    as_json: bool,
) -> None:
    from schemas.delivery import DeliveryState
    from workers.cli.connect import open_database
    from workers.operations.deliveries import list_deliveries

    if unknown := sorted(set(states) - {state.value for state in DeliveryState}):
        raise typer.BadParameter(f"{', '.join(unknown)}: the states are {', '.join(DeliveryState)}")
    async with open_database() as database:
        lines = await list_deliveries(
            database,
            states=[DeliveryState(state) for state in states],
            channel=channel,
            run_id=run_id,
            before=before,
            limit=at_most,
        )
    if as_json:
        print_json(lines)
        return
    print_table(
        ("delivery", "state", "reason", "attempt", "channel", "address", "created", "ended"),
        [
            (
                line.delivery_id,
                line.state.value,
                line.reason,
                line.attempt,
                line.channel,
                line.address,
                line.created_at,
                line.finished_at,
            )
            for line in lines
        ],
        "no such deliveries",
    )


async def _show(delivery_id: UUID, as_json: bool) -> None:
    from workers.cli.connect import open_database
    from workers.operations.delivery_log import show_delivery

    async with open_database() as database:
        delivery, log = await show_delivery(database, delivery_id)
    if as_json:
        print_json({**plain(delivery), "log": log})
        return
    print_fields(plain(delivery))
    print_line("")
    print_table(
        ("attempt", "kind", "outcome", "detail", "provider id", "late", "at"),
        [(a.attempt, a.kind, a.outcome, a.detail, a.provider_id, a.late, a.recorded_at) for a in log],
        "nothing was tried yet",
    )


async def _act(
    act: "Callable[[Database, UUID, str], Awaitable[None]]", delivery_id: UUID, done: str, as_json: bool
) -> None:
    from workers.cli.connect import open_database, operator
    from workers.operations.delivery_log import show_delivery

    async with open_database() as database:
        await act(database, delivery_id, operator())
        delivery, _ = await show_delivery(database, delivery_id)
    if as_json:
        print_json(delivery)
        return
    print_line(f"delivery {delivery_id} of run {delivery.run_id}: {done}")
