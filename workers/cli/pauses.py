"""`parley pause`, `parley resume` and `parley pauses`."""

from typing import TYPE_CHECKING, Annotated

import typer

from workers.cli.edge import run
from workers.cli.output import print_json, print_line, print_table
from workers.cli.usage import Json

if TYPE_CHECKING:
    from workers.operations.pauses import Target

pause = typer.Typer(
    no_args_is_help=True,
    help="Let turns of an agent, a channel or an account wait; what comes in is admitted all the same. Audited.",
)
resume = typer.Typer(no_args_is_help=True, help="Let what was paused go on. Audited.")

Agent = Annotated[str, typer.Argument(help="The agent's name.")]
Channel = Annotated[str, typer.Argument(help="The channel's name.")]
Account = Annotated[str, typer.Argument(help="The account within the channel.")]
Reason = Annotated[str | None, typer.Option(help="Why, for whoever looks at `parley pauses`.")]


@pause.command("agent")
def pause_agent(name: Agent, reason: Reason = None, as_json: Json = False) -> None:
    """No turn of this agent begins. What its turns have already said is still sent."""
    from workers.operations.pauses import Target

    run(_pause(Target("agent", name), reason, as_json))


@pause.command("channel")
def pause_channel(name: Channel, reason: Reason = None, as_json: Json = False) -> None:
    """No turn for this channel begins, and nothing new is sent there."""
    from workers.operations.pauses import Target

    run(_pause(Target("channel", name), reason, as_json))


@pause.command("account")
def pause_account(channel: Channel, account: Account, reason: Reason = None, as_json: Json = False) -> None:
    """No turn for this account begins, and nothing new is sent there."""
    from workers.operations.pauses import Target

    run(_pause(Target("account", channel, account), reason, as_json))


@resume.command("agent")
def resume_agent(name: Agent, as_json: Json = False) -> None:
    """Its turns go on."""
    from workers.operations.pauses import Target

    run(_resume(Target("agent", name), as_json))


@resume.command("channel")
def resume_channel(name: Channel, as_json: Json = False) -> None:
    """Its turns and sends go on."""
    from workers.operations.pauses import Target

    run(_resume(Target("channel", name), as_json))


@resume.command("account")
def resume_account(channel: Channel, account: Account, as_json: Json = False) -> None:
    """Its turns and sends go on."""
    from workers.operations.pauses import Target

    run(_resume(Target("account", channel, account), as_json))


def list_pauses(as_json: Json = False) -> None:
    """What is paused, since when and by whom."""
    run(_list(as_json))


async def _pause(target: "Target", reason: str | None, as_json: bool) -> None:
    from workers.cli.connect import open_database, operator
    from workers.operations import pauses

    async with open_database() as database:
        await pauses.pause(database, target, operator(), reason)
        unknown = target.kind == "agent" and await pauses.is_agent_known(database, target.name) is False
    if as_json:
        print_json({"paused": target, "unknown": unknown})
        return
    print_line(f"paused {target}: workers know within a second; what runs now comes to its end")
    if unknown:
        print_line(f"no living worker has an agent named {target.name}")


async def _resume(target: "Target", as_json: bool) -> None:
    from workers.cli.connect import open_database, operator
    from workers.operations import pauses

    async with open_database() as database:
        await pauses.resume(database, target, operator())
    if as_json:
        print_json({"resumed": target})
        return
    print_line(f"resumed {target}")


async def _list(as_json: bool) -> None:
    from workers.cli.connect import open_database
    from workers.operations import pauses

    async with open_database() as database:
        lines = await pauses.list_pauses(database)
    if as_json:
        print_json(lines)
        return
    print_table(
        ("paused", "name", "account", "since", "by", "reason"),
        [(line.kind, line.name, line.account, line.paused_at, line.actor, line.reason) for line in lines],
        "nothing is paused",
    )
