"""The rule of splitting, written without haste: each piece of the text is looked at, first to last."""

from collections.abc import Iterator

import regex

from schemas.text import clean
from workers.channels.port import SizeUnit
from workers.channels.splitting import size_of


def split_plainly(text: str, limit: int, unit: SizeUnit) -> tuple[str, ...]:
    """What `split_text` has to give."""
    return tuple(_chunks(clean(text), limit, unit))


def _chunks(text: str, limit: int, unit: SizeUnit) -> Iterator[str]:
    pieces: list[str] = []
    for piece in _pieces(text, limit, unit):
        while pieces and size_of("".join([*pieces, piece]), unit) > limit:
            cut = _cut(pieces)
            yield "".join(pieces[:cut])
            pieces = pieces[cut:]
        pieces.append(piece)
    yield "".join(pieces)


def _pieces(text: str, limit: int, unit: SizeUnit) -> Iterator[str]:
    for cluster in regex.findall(r"\X", text):
        if size_of(cluster, unit) <= limit:
            yield cluster
        else:
            yield from cluster


def _cut(pieces: list[str]) -> int:
    half = len(pieces) // 2
    for is_break in (lambda piece: piece in ("\n", "\r\n"), str.isspace):
        for index in range(len(pieces), half, -1):
            if is_break(pieces[index - 1]):
                return index
    return len(pieces)
