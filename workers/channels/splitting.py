"""Long replies in chunks that fit a channel's limit in its own unit, and that joined are the reply again.

A cut falls behind a line break, else behind a space, else between grapheme clusters (a family emoji, a flag
and a letter with its accents stay whole). Only a cluster that is by itself longer than the limit is cut
between code points.
"""

from collections.abc import Callable, Iterator
from typing import Final

import regex

from schemas.text import clean
from workers.channels.port import SizeUnit

_CLUSTER: Final = regex.compile(r"\X")
_MEASURES: Final[dict[SizeUnit, Callable[[str], int]]] = {
    "codepoint": len,
    "utf16": lambda text: len(text.encode("utf-16-le")) // 2,
    "utf8": lambda text: len(text.encode()),
}
_LEAST_LIMIT: Final = 4  # one code point fits in every unit


def size_of(text: str, unit: SizeUnit) -> int:
    """The length of `text` in `unit`."""
    return _MEASURES[unit](text)


def split_text(text: str, limit: int, unit: SizeUnit) -> tuple[str, ...]:
    """Chunks of at most `limit` units, one where the text fits. Raises ValueError for a limit below 4."""
    if limit < _LEAST_LIMIT:
        raise ValueError("a size limit is at least 4 units")
    text = clean(text)
    measure = _MEASURES[unit]
    if measure(text) <= limit:
        return (text,)
    return tuple(_chunks(text, limit, measure))


def _chunks(text: str, limit: int, measure: Callable[[str], int]) -> Iterator[str]:
    pieces: list[str] = []
    size = 0
    for piece in _pieces(text, limit, measure):
        piece_size = measure(piece)
        while pieces and size + piece_size > limit:
            cut = _cut(pieces)
            yield "".join(pieces[:cut])
            pieces = pieces[cut:]
            size = measure("".join(pieces))
        pieces.append(piece)
        size += piece_size
    yield "".join(pieces)


def _pieces(text: str, limit: int, measure: Callable[[str], int]) -> Iterator[str]:
    for match in _CLUSTER.finditer(text):
        cluster = match.group()
        if measure(cluster) <= limit:
            yield cluster
        else:
            yield from cluster


def _cut(pieces: list[str]) -> int:
    """How many pieces go out: to the last line break in the second half, else the last space, else all."""
    half = len(pieces) // 2
    for is_break in (_ends_line, str.isspace):
        for index in range(len(pieces), half, -1):
            if is_break(pieces[index - 1]):
                return index
    return len(pieces)


def _ends_line(piece: str) -> bool:
    return piece in ("\n", "\r\n")
