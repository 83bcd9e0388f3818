"""`parley publish`: one signed event by hand."""

from pathlib import Path

import typer

from workers.cli.edge import run
from workers.cli.output import print_json, print_line
from workers.cli.usage import Json


def publish(
    text: str = typer.Option(..., help="What the person wrote."),
    channel: str = typer.Option(..., help="A registered channel."),
    account: str = typer.Option(..., help="The channel's account."),
    chat: str = typer.Option(..., help="Where it was written."),
    principal: str = typer.Option(..., help="The id of who wrote it."),
    audience: str = typer.Option("direct", help="`direct`, or the name of a group audience."),
    thread: str | None = typer.Option(None, help="The thread in the chat."),
    tenant: str | None = typer.Option(None, help="The tenant of the principal."),
    kind: str = typer.Option("message", help="The kind of event."),
    event_id: str | None = typer.Option(None, help="Its id; a new one when not given."),
    message_id: str | None = typer.Option(None, help="The message's own id."),
    key_file: Path | None = typer.Option(None, help="Key file with a whsec_ or whsk_ key to sign with."),
    app: str | None = typer.Option(None, metavar="MODULE:APP", help="Sign with this app's own channel keys."),
    as_json: Json = False,
) -> None:
    """Sign an event as its adapter would, publish it, and say where it stands once it is acknowledged."""
    fields: dict[str, object] = {
        "channel": channel,
        "account": account,
        "chat": chat,
        "thread": thread,
        "audience": audience,
        "kind": kind,
        "text": text,
        "event_id": event_id,
        "message_id": message_id,
    }
    run(_publish(fields, principal, tenant, key_file, app, as_json))


async def _publish(
    fields: dict[str, object],
    principal: str,
    tenant: str | None,
    key_file: Path | None,
    app: str | None,
    as_json: bool,
) -> None:
    from datetime import UTC, datetime

    from schemas.envelope import seal
    from schemas.errors import Misconfigured
    from schemas.event import event_of
    from schemas.run import new_uuid7
    from schemas.signing import MAX_SIGNATURES
    from schemas.upcast import CURRENT_VERSION
    from workers.cli.connect import kafka_settings
    from workers.cli.keys import signing_keys
    from workers.kafka import publish as kafka

    now = datetime.now(UTC)
    given = {name: value for name, value in fields.items() if value is not None}
    caller = {"id": principal} if tenant is None else {"id": principal, "tenant": tenant}
    document = {
        "event_id": str(new_uuid7()),
        **given,
        "principal": caller,
        "version": CURRENT_VERSION,
        "occurred_at": now.isoformat(),
    }
    event = event_of(document, b"")
    keys = signing_keys(key_file, app)(event.channel)[:MAX_SIGNATURES]
    if not keys:
        raise Misconfigured(
            f"there is no signing key for channel {event.channel}: give --key-file with a whsec_ or whsk_ key of it"
        )
    settings = kafka_settings()
    sealed = seal(event, keys, now)
    position = await kafka.publish(settings, settings.events_topic, sealed.key, sealed.value, sealed.headers)
    if as_json:
        print_json(
            {
                "event_id": event.event_id,
                "topic": position.topic,
                "partition": position.partition,
                "offset": position.offset,
            }
        )
        return
    print_line(f"{position.topic} {position.partition} {position.offset} event {event.event_id}")
