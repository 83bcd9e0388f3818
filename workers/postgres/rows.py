"""The rows of a batch as one JSON parameter, read by `json_to_recordset`; and how many rows a command touched.

Arrays, one a column, cost the driver close to a microsecond an element; this costs a tenth of that, and a few columns
more make no difference.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson

from workers.postgres.failures import UnwritableRow


def as_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A JSON array of objects: bytes in the hex form of `bytea`, times as RFC 3339, spans as `interval` reads them.

    Raises UnwritableRow for text that is not storable.
    """
    try:
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        return orjson.dumps(named, default=_as_text).decode()
    except orjson.JSONEncodeError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise UnwritableRow(str(error)) from None


def touched(command_tag: str) -> int:
    """How many rows an insert, update or delete touched, from what the server answers (`INSERT 0 5`, `UPDATE 5`)."""
    return int(command_tag.rsplit(" ", 1)[1])


def _as_text(value: object) -> str:
    if isinstance(value, UUID):  # the driver's own, which is another type
        return str(value)
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    raise TypeError(f"no column holds a {type(value).__name__}")
