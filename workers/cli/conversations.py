"""`parley conversations`: list, inspect, reset, delete, prune."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from schemas.identity import Identity
from workers.cli.edge import run
from workers.cli.identities import Account, Audience, Channel, Chat, MemoryKey, Number, named
from workers.cli.output import plain, print_fields, print_json, print_line, print_table, printable
from workers.cli.usage import AtMost, Json

if TYPE_CHECKING:
    from workers.operations.quiet import WhenActive

group = typer.Typer(
    no_args_is_help=True, help="Look at conversations, reset or delete one, prune what retention lets go."
)

Wait = Annotated[
    bool, typer.Option("--wait", help="Hold claims of it and wait until the active turn has ended.")
]
Cancel = Annotated[
    bool, typer.Option("--cancel", help="Cancel the active turn, and wait until its worker has stopped it.")
]
Within = Annotated[
    float, typer.Option(min=0, max=3600, help="Give up after so many seconds (with --wait or --cancel).")
]

LARGEST_OFFSET: Final = 2**31 - 1


def _offset(offset: int) -> int:
    if not 0 <= offset <= LARGEST_OFFSET:
        raise typer.BadParameter(f"{offset} is not a count of items, which is 0 to {LARGEST_OFFSET}")
    return offset


Offset = Annotated[int, typer.Option(callback=_offset, help="Leave out this many of the newest items.")]

PROGRESS_SECONDS: Final = 1.0


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
    offset: Offset = 0,
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
    wait: Wait = False,
    cancel: Cancel = False,
    within: Within = 60,
    as_json: Json = False,
) -> None:
    """Begin anew: nothing older is recalled. Refused while a turn is active, unless --wait or --cancel. Audited."""
    which = named(number, memory_key, channel, account, chat, audience)
    run(_renew(which, keep_notes, _when_active(wait, cancel), within, as_json, delete=False))


@group.command()
def delete(
    number: Number = None,
    memory_key: MemoryKey = None,
    channel: Channel = None,
    account: Account = None,
    chat: Chat = None,
    audience: Audience = None,
    wait: Wait = False,
    cancel: Cancel = False,
    within: Within = 60,
    as_json: Json = False,
) -> None:
    """Remove items, notes and receipts; a tombstone stays. Refused as a reset is, or waits as one. Audited."""
    which = named(number, memory_key, channel, account, chat, audience)
    run(_renew(which, False, _when_active(wait, cancel), within, as_json, delete=True))


@group.command()
def prune(
    app: str | None = typer.Option(
        None,
        metavar="MODULE:APP",
        help="The app whose Limits say how long and how many items are kept; without it items go by "
        "PARLEY_KEEP_CONVERSATIONS alone.",
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only count what would go."),
    as_json: Json = False,
) -> None:
    """Remove what retention lets go of all conversations, in small batches that are told on stderr. Audited.

    What is interrupted keeps what it has done, and goes on from there when it is run again.
    """
    run(_prune(app, dry_run, as_json))


def _when_active(wait: bool, cancel: bool) -> "WhenActive":
    if wait and cancel:
        raise typer.BadParameter("give either --wait or --cancel")
    return "cancel" if cancel else "wait" if wait else "refuse"


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


async def _renew(
    which: int | Identity,
    keep_notes: bool,
    when_active: "WhenActive",
    within_seconds: float,
    as_json: bool,
    *,
    delete: bool,
) -> None:
    from workers.cli.connect import open_database, operator
    from workers.operations import conversations

    within = timedelta(seconds=within_seconds)

    def waiting(run_id: UUID) -> None:
        cancelled = "it is cancelled, and " if when_active == "cancel" else ""
        _say(f"waiting up to {within} for run {run_id}: {cancelled}no other turn of this conversation begins")

    async with open_database() as database:
        if delete:
            renewed = await conversations.delete(
                database, which, operator(), when_active=when_active, within=within, waiting=waiting
            )
        else:
            renewed = await conversations.reset(
                database,
                which,
                operator(),
                keep_notes=keep_notes,
                when_active=when_active,
                within=within,
                waiting=waiting,
            )
    if as_json:
        print_json(renewed)
        return
    print_line(
        f"{renewed.act} of conversation {renewed.lane_id} done: generation {renewed.generation}, "
        f"{renewed.cancelled_runs} runs cancelled, {renewed.abandoned_deliveries} deliveries abandoned"
    )


async def _prune(target: str | None, dry_run: bool, as_json: bool) -> None:
    from workers.cli.connect import database_settings, open_database, operator
    from workers.cli.loading import load_app
    from workers.operations import conversations
    from workers.operations.retention import SETTINGS

    settings = database_settings()
    memory = load_app(target).conversations if target is not None else None
    limits = None if memory is None else memory.limits
    async with open_database(settings.database_url) as database:
        rows = await conversations.prune(
            database, settings.retention, operator(), limits=limits, dry_run=dry_run, pruned=_progress()
        )
    if as_json:
        print_json({"dry_run": dry_run, "rows": rows})
        return
    print_table(
        ("table", "would go" if dry_run else "removed", "by"),
        [(table, rows[table], SETTINGS[table]) for table in sorted(rows)],
        "nothing to prune",
    )


def _progress() -> Callable[[str, int], None]:
    """Says on stderr how many rows went so far, once a second."""
    so_far: Counter[str] = Counter()
    said_at = time.monotonic()

    def pruned(table: str, rows: int) -> None:
        nonlocal said_at
        so_far[table] += rows
        if time.monotonic() - said_at >= PROGRESS_SECONDS:
            said_at = time.monotonic()
            _say("removed so far: " + ", ".join(f"{count} {name}" for name, count in sorted(so_far.items())))

    return pruned


def _say(line: str) -> None:
    sys.stderr.write(printable(line) + "\n")
    sys.stderr.flush()
