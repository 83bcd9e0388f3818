"""What a runbook tells a tired person to type is what the command line takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer

from deploy.checks.tools import ROOT
from workers.cli.program import program

PAGES: Final = (
    "docs/runbooks",
    "docs/operations.md",
    "docs/topics.md",
    "docs/sizing.md",
    "docs/kubernetes.md",
)
_BLOCK: Final = re.compile(r"^ {4,}(?:PARLEY_\w+=\S+ )*(parley .*)$", re.MULTILINE)
_INLINE: Final = re.compile(r"`(parley [^`]+)`")
_PLACEHOLDER: Final = re.compile(r"^[A-Z_]+$")


def commands_in(text: str) -> list[str]:
    """Every `parley ...` of a page: in blocks as it stands, in a sentence where it is whole."""
    return [line.partition(" #")[0].strip() for line in [*_BLOCK.findall(text), *_INLINE.findall(text)]]


def refusal(command: str) -> str | None:
    """Why the command line would not take these words, or None. In a sentence arguments may be missing."""
    if "|" in command or "..." in command:
        return None
    node: Any = typer.main.get_command(program)
    words = [_PLACEHOLDER.sub("1", word) for word in shlex.split(command)[1:]]
    while hasattr(node, "commands") and words:
        name = words.pop(0)
        if name not in node.commands:
            return f"there is no command {name}"
        node = node.commands[name]
    if hasattr(node, "commands") or not words:
        return None
    try:
        node.make_context(node.name, words, resilient_parsing=False)
    except Exception as error:
        return str(getattr(error, "message", "") or error)
    return None


def pages() -> Iterator[Path]:
    """Every page for operators."""
    for name in PAGES:
        path = ROOT / name
        yield from sorted(path.glob("*.md")) if path.is_dir() else [path] * path.exists()


def problems() -> list[str]:
    """One line a command that there is not."""
    return [
        f"{page.relative_to(ROOT)}: {command}: {why}"
        for page in pages()
        for command in commands_in(page.read_text("utf-8"))
        if (why := refusal(command)) is not None
    ]
