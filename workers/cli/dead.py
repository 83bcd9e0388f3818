"""`parley dead`: list, show, replay."""

from collections import Counter
from pathlib import Path

import typer

from workers.cli.edge import run
from workers.cli.output import plain, print_fields, print_json, print_line, print_table
from workers.cli.usage import Json

group = typer.Typer(no_args_is_help=True, help="Look at refused events and send them in again.")


@group.command("list")
def list_(
    reason: str | None = typer.Option(None, help="Only letters with this reason."), as_json: Json = False
) -> None:
    """Every refused record that the dead letter topic still keeps, each once."""
    run(_list(reason, as_json))


@group.command()
def show(
    key: str,
    value: bool = typer.Option(False, "--value", help="Also the record's value: what people wrote."),
    as_json: Json = False,
) -> None:
    """One refused record, by its key topic:partition:offset."""
    run(_show(key, value, as_json))


@group.command()
def replay(
    keys: list[str] = typer.Argument(metavar="KEY..."),
    key_file: Path | None = typer.Option(None, help="Key file with a whsec_ or whsk_ key to sign with."),
    app: str | None = typer.Option(None, metavar="MODULE:APP", help="Sign with this app's own channel keys."),
    as_json: Json = False,
) -> None:
    """Sign refused events anew and send them in again, under their own ids. Audited."""
    run(_replay(keys, key_file, app, as_json))


async def _list(reason: str | None, as_json: bool) -> None:
    from workers.cli.connect import kafka_settings
    from workers.operations.dead import read_letters

    letters = [each for each in await read_letters(kafka_settings()) if reason in (None, each.reason)]
    if as_json:
        print_json([_document(letter) for letter in letters])
        return
    print_table(
        ("key", "reason", "detail", "event", "source", "refused at", "bytes", "copies"),
        [
            (x.key, x.reason, x.detail, x.event_id, x.source, x.refused_at, x.value_bytes, x.copies)
            for x in letters
        ],
        "no dead letters",
    )
    if letters:
        counts = Counter(letter.reason for letter in letters)
        print_line(", ".join(f"{count} {name}" for name, count in counts.most_common()))


async def _show(key: str, value: bool, as_json: bool) -> None:
    from workers.cli.connect import kafka_settings
    from workers.operations.dead import read_letter

    letter = await read_letter(kafka_settings(), key)
    document = _document(letter)
    if value:
        document["value"] = None if letter.value is None else letter.value.decode(errors="replace")
    if as_json:
        print_json(document)
        return
    print_fields(document)


async def _replay(keys: list[str], key_file: Path | None, app: str | None, as_json: bool) -> None:
    from datetime import UTC, datetime

    from workers.cli.connect import all_settings, open_database, operator
    from workers.cli.keys import signing_keys
    from workers.operations import dead

    settings = all_settings()
    keys_of = signing_keys(key_file, app)
    replayed = []
    async with open_database(settings.database_url) as database:
        for key in keys:
            letter = await dead.read_letter(settings.kafka, key)
            replayed.append(
                await dead.replay(settings.kafka, database, letter, keys_of, operator(), datetime.now(UTC))
            )
    if as_json:
        print_json(replayed)
        return
    for each in replayed:
        place = f"{each.position.topic} {each.position.partition} {each.position.offset}"
        print_line(f"replayed {each.key}: event {each.event_id} of channel {each.channel} is at {place}")


def _document(letter: object) -> dict[str, object]:
    import dataclasses

    assert dataclasses.is_dataclass(letter)
    names = [field.name for field in dataclasses.fields(letter) if field.name != "value"]
    return {name: plain(getattr(letter, name)) for name in names}
