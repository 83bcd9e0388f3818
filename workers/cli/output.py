"""What a command says on its output: one JSON document for machines, tables for people.

Values that came from outside are shown as plain text: no markup, no control character reaches the terminal.
"""

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TextIO
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_WIDE: Final = 220
_NOT_WRITTEN: Final = 1


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
    with _output() as stream:
        stream.write(json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n")


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
    _print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Write `name  value` lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(Text(name), Text(_cell(value)))
    _print(table)


def print_line(text: str) -> None:
    """Write one line."""
    _print(Text(printable(text)), soft_wrap=True)


def printable(text: str) -> str:
    """`text` with what could drive a terminal made visible."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _print(what: Table | Text, *, soft_wrap: bool = False) -> None:
    with _output() as stream:
        console = Console(file=stream, width=None if stream.isatty() else _WIDE, highlight=False)
        with console.capture() as rendered:
            console.print(what, soft_wrap=soft_wrap)
        stream.write(rendered.get())


@contextmanager
def _output() -> Iterator[TextIO]:
    """Standard output, flushed at the end; ends the command where it is closed, full, or its reader has left."""
    stream: TextIO | None = sys.stdout
    if stream is None:
        raise typer.Exit(_NOT_WRITTEN)
    try:
        yield stream
        stream.flush()
    except OSError as error:
        # What is still buffered would fail once more when the interpreter ends.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"error: standard output cannot be written: {error.strerror}\n")
        raise typer.Exit(_NOT_WRITTEN) from None


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
