"""Options and arguments that several commands share."""

from typing import Annotated
from uuid import UUID

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
AtMost = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")]


def identifier(text: str, kind: str) -> UUID:
    """The id in `text`, or a usage error that says what was expected."""
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not the id of a {kind} (a UUID)") from None
