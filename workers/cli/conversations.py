"""`parley conversations`: list, inspect, reset, delete."""

import typer

from schemas.identity import Identity
from workers.cli.edge import run
from workers.cli.identities import Account, Audience, Channel, Chat, MemoryKey, Number, named
from workers.cli.output import plain, print_fields, print_json, print_line, print_table
from workers.cli.usage import AtMost, Json

group = typer.Typer(no_args_is_help=True, help="Look at conversations, reset or delete one.")


@group.command("list")
def list_(
    memory_key: str | None = typer.Option(None, help="Only conversations under this memory key."),
    channel: str | None = typer.Option(None, help="Only on this channel."),
    chat: str | None = typer.Option(None, help="Only in this chat (with its thread as chat/thread)."),
    at_most: AtMost = 50,
    as_json: Json = False,
) -> None:
    """The newest conversations, newest first."""
    run(_list(memory_key, channel, chat, at_most, as_json))


@group.command()
def inspect(
    number: Number = None,
    memory_key: MemoryKey = None,
    channel: Channel = None,
    account: Account = None,
    chat: Chat = None,
    audience: Audience = None,
    at_most: AtMost = 20,
    offset: int = typer.Option(0, min=0, help="Leave out this many of the newest items."),
    as_json: Json = False,
) -> None:
    """What is kept of a conversation: items newest first, and notes. Shows what people wrote."""
    run(_inspect(named(number, memory_key, channel, account, chat, audience), at_most, offset, as_json))


@group.command()
def reset(
    number: Number = None,
    memory_key: MemoryKey = None,
    channel: Channel = None,
    account: Account = None,
    chat: Chat = None,
    audience: Audience = None,
    keep_notes: bool = typer.Option(False, "--keep-notes", help="Take the notes over."),
    as_json: Json = False,
) -> None:
    """Begin anew: nothing older is recalled. Refused while a turn is active. Audited."""
    which = named(number, memory_key, channel, account, chat, audience)
    run(_renew(which, keep_notes, as_json, delete=False))


@group.command()
def delete(
    number: Number = None,
    memory_key: MemoryKey = None,
    channel: Channel = None,
    account: Account = None,
    chat: Chat = None,
    audience: Audience = None,
    as_json: Json = False,
) -> None:
    """Remove items, notes and their receipts; a tombstone stays. Refused while a turn is active. Audited."""
    which = named(number, memory_key, channel, account, chat, audience)
    run(_renew(which, False, as_json, delete=True))


async def _list(
    memory_key: str | None, channel: str | None, chat: str | None, at_most: int, as_json: bool
) -> None:
    from workers.cli.connect import open_database
    from workers.operations.conversations import list_conversations

    async with open_database() as database:
        lines = await list_conversations(
            database, memory_key=memory_key, channel=channel, chat=chat, at_most=at_most
        )
    if as_json:
        print_json(lines)
        return
    print_table(
        ("conversation", "memory key", "channel", "account", "chat", "audience", "generation", "deleted"),
        [
            (c.lane_id, c.memory_key, c.channel, c.account, c.chat, c.audience, c.generation, c.deleted_at)
            for c in lines
        ],
        "no such conversations",
    )


async def _inspect(which: int | Identity, at_most: int, offset: int, as_json: bool) -> None:
    from workers.cli.connect import open_database
    from workers.operations import conversations

    async with open_database() as database:
        found = await conversations.inspect(database, which, at_most=at_most, offset=offset)
    if found is None:
        raise conversations.unknown(which)
    if as_json:
        print_json(found)
        return
    counts = {
        "items": found.item_count,
        "notes": found.note_count,
        "open runs": found.open_runs,
        "open deliveries": found.open_deliveries,
    }
    print_fields({**plain(found.conversation), **counts})
    print_line("")
    print_table(
        ("item", "generation", "kind", "status", "created", "text"),
        [(i.item_id, i.generation, i.kind, i.status, i.created_at, i.body) for i in found.items],
        "no items",
    )
    print_line("")
    print_table(("note", "expires", "text"), [(n.key, n.expires_at, n.body) for n in found.notes], "no notes")


async def _renew(which: int | Identity, keep_notes: bool, as_json: bool, *, delete: bool) -> None:
    from workers.cli.connect import open_database, operator
    from workers.operations import conversations

    async with open_database() as database:
        if delete:
            renewed = await conversations.delete(database, which, operator())
        else:
            renewed = await conversations.reset(database, which, operator(), keep_notes=keep_notes)
    if as_json:
        print_json(renewed)
        return
    print_line(
        f"{renewed.act} of conversation {renewed.lane_id} done: generation {renewed.generation}, "
        f"{renewed.cancelled_runs} runs cancelled, {renewed.abandoned_deliveries} deliveries abandoned"
    )
