"""What a command says on its output: one JSON document for machines, tables for people.

Values that came from outside are shown as plain text: no markup, no control character reaches the terminal.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from rich.console import Console
from rich.table import Table
from rich.text import Text

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_WIDE: Final = 220


def plain(value: object) -> Any:
    """`value` in JSON's types: dataclasses as objects, times as RFC 3339, durations in seconds."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON here")


def print_json(value: object) -> None:
    """Write one JSON document."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Write a table, or the line `empty` where there is nothing."""
    if not rows:
        print_line(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    _console().print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Write `name  value` lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(Text(name), Text(_cell(value)))
    _console().print(table)


def print_line(text: str) -> None:
    """Write one line."""
    _console().print(Text(printable(text)), soft_wrap=True)


def printable(text: str) -> str:
    """`text` with what could drive a terminal made visible."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case float():
            return f"{value:.3f}"
        case _:
            return printable(str(value))
