"""`parley runs`: list, show, cancel."""

from uuid import UUID

import typer

from workers.cli.edge import run
from workers.cli.output import plain, print_fields, print_json, print_line, print_table
from workers.cli.usage import AtMost, Json, identifier

group = typer.Typer(no_args_is_help=True, help="Look at runs and cancel them.")


@group.command("list")
def list_(
    agent: str | None = typer.Option(None, help="Only runs of this agent."),
    status: str | None = typer.Option(None, help="Only runs in this state: queued, running, failed, ..."),
    channel: str | None = typer.Option(None, help="Only runs of events of this channel."),
    open_only: bool = typer.Option(False, "--open", help="Only runs that have not ended."),
    at_most: AtMost = 50,
    as_json: Json = False,
) -> None:
    """The newest runs, newest first."""
    run(_list(agent, status, channel, open_only, at_most, as_json))


@group.command()
def show(run_id: str, as_json: Json = False) -> None:
    """One run with its journal and its deliveries; no message text."""
    run(_show(identifier(run_id, "run"), as_json))


@group.command()
def cancel(
    run_ids: list[str] | None = typer.Argument(None, metavar="RUN..."),
    agent: str | None = typer.Option(None, help="Cancel every open run of this agent instead."),
    yes: bool = typer.Option(False, "--yes", help="With --agent: do it; without this it only counts them."),
    as_json: Json = False,
) -> None:
    """Cancel runs: those that wait end at once, those that run are asked to stop. Audited."""
    if bool(run_ids) == bool(agent):
        raise typer.BadParameter("give either run ids or --agent")
    if agent is not None and not yes:
        run(_count_open(agent, as_json))
        return
    run(_cancel([identifier(run_id, "run") for run_id in run_ids or ()], agent, as_json))


async def _list(
    agent: str | None, status: str | None, channel: str | None, open_only: bool, at_most: int, as_json: bool
) -> None:
    from workers.cli.connect import open_database
    from workers.operations.runs import list_runs

    async with open_database() as database:
        lines = await list_runs(
            database, agent=agent, status=status, channel=channel, open_only=open_only, at_most=at_most
        )
    if as_json:
        print_json(lines)
        return
    print_table(
        ("run", "agent", "status", "reason", "channel", "event", "admitted", "ended"),
        [
            (r.run_id, r.agent, r.status, r.reason, r.channel, r.event_id, r.admitted_at, r.finished_at)
            for r in lines
        ],
        "no such runs",
    )


async def _show(run_id: UUID, as_json: bool) -> None:
    from workers.cli.connect import open_database
    from workers.operations.runs import show_run

    async with open_database() as database:
        detail = await show_run(database, run_id)
    document = plain(detail)
    if as_json:
        print_json(document)
        return
    steps, deliveries = document.pop("steps"), document.pop("deliveries")
    print_fields({**document.pop("run"), **document})
    print_line("")
    print_table(
        ("step", "call", "kind", "name", "state", "bytes"),
        [(s["step"], s["call"], s["kind"], s["name"], s["state"], s["result_bytes"]) for s in steps],
        "no steps journalled",
    )
    print_line("")
    print_table(
        ("delivery", "key", "state", "reason", "attempt"),
        [(d["delivery_id"], d["key"], d["state"], d["reason"], d["attempt"]) for d in deliveries],
        "no deliveries",
    )


async def _count_open(agent: str, as_json: bool) -> None:
    from workers.cli.connect import open_database
    from workers.operations import facts

    async with open_database() as database, facts.looking(database) as tx:
        open_runs = sum(each.runs for each in await facts.read_open_runs(tx) if each.agent == agent)
    if as_json:
        print_json({"done": False, "agent": agent, "open_runs": open_runs})
        return
    print_line(f"{open_runs} open runs of {agent} would be cancelled; nothing was done: give --yes to do it")


async def _cancel(run_ids: list[UUID], agent: str | None, as_json: bool) -> None:
    from workers.cli.connect import open_database, operator
    from workers.operations.runs import cancel_runs, cancel_runs_of

    async with open_database() as database:
        if agent is not None:
            results = await cancel_runs_of(database, agent, operator())
        else:
            results = await cancel_runs(database, run_ids, operator())
    if as_json:
        print_json(results)
        return
    said = {
        "cancelled": "cancelled",
        "requested": "its worker was asked to stop it",
        "over": "had ended before",
    }
    print_table(
        ("run", "result", "status"),
        [(result.run_id, said[result.outcome], result.status) for result in results],
        "no open runs",
    )
