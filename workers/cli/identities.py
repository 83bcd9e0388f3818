"""How a command names a conversation: by its number, or by the five parts of its identity.

The identity holds the memory key and not the agent's name: agents may share a key, and be renamed under it.
"""

from typing import Annotated, Final

import typer

from schemas.identity import Identity

LARGEST_NUMBER: Final = 2**63 - 1


def _number(number: int | None) -> int | None:
    if number is not None and not 1 <= number <= LARGEST_NUMBER:
        raise typer.BadParameter(
            f"{number} is not the number of a conversation, which is 1 to {LARGEST_NUMBER}"
        )
    return number


Number = Annotated[
    int | None,
    typer.Argument(
        callback=_number,
        metavar="CONVERSATION",
        help="Its number, as `list` shows it; or give all five options.",
    ),
]
MemoryKey = Annotated[
    str | None, typer.Option(help="Its memory key, which is the agent's name only where none was given.")
]
Channel = Annotated[str | None, typer.Option(help="Its channel.")]
Account = Annotated[str | None, typer.Option(help="Its account within the channel.")]
Chat = Annotated[str | None, typer.Option(help="Its chat, with its thread as chat/thread.")]
Audience = Annotated[str | None, typer.Option(help="Its audience: direct, or what the group's adapter says.")]

PARTS: Final = ("--memory-key", "--channel", "--account", "--chat", "--audience")


def named(
    number: int | None,
    memory_key: str | None,
    channel: str | None,
    account: str | None,
    chat: str | None,
    audience: str | None,
) -> int | Identity:
    """The conversation that was named; a usage error where it was named twice, in part, or not at all."""
    given = (memory_key, channel, account, chat, audience)
    missing = [option for option, part in zip(PARTS, given, strict=True) if part is None]
    if number is not None:
        if len(missing) < len(PARTS):
            raise typer.BadParameter("give either the number of a conversation or its identity")
        return number
    if memory_key is None or channel is None or account is None or chat is None or audience is None:
        raise typer.BadParameter(
            f"give the number of a conversation or its whole identity: {', '.join(missing)}"
        )
    return Identity(memory_key, channel, account, chat, audience)
