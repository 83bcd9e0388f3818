"""Long replies in chunks that fit a channel's limit in its own unit, and that joined are the reply again.

A cut falls behind a line break, else behind a space, else between grapheme clusters (a family emoji, a flag
and a letter with its accents stay whole). Only a cluster that is by itself longer than the limit is cut
between code points. A line break or space counts where more pieces (clusters, or such code points) of the full
chunk are before it than behind it.

Clusters are looked for near a cut only, so a megabyte of common text costs milliseconds of the event loop.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import regex

from schemas.errors import Rejected
from schemas.text import clean
from workers.channels.port import SizeUnit

MAX_CHUNKS: Final = 1_000
"""The most messages that one reply may become."""

_CODECS: Final[dict[SizeUnit, tuple[str, int]]] = {
    "codepoint": ("utf-32-le", 4),
    "utf16": ("utf-16-le", 2),
    "utf8": ("utf-8", 1),
}
_LEAST_LIMIT: Final = 4  # one code point fits in every unit

# `\X` counts back to the first of a row of flags at each one; from an edge on, two halves are one flag.
_CLUSTER: Final = regex.compile(r"\p{GCB=Regional_Indicator}{2}(?=\p{GCB=Regional_Indicator})|\X")
# Where there is always an edge, whatever stands further off: between two characters that join to nothing, and before
# a letter or sign of scripts without conjuncts.
_ALOOF: Final = r"[\p{GCB=Other}\p{GCB=Control}\p{GCB=LF}\p{GCB=LV}\p{GCB=LVT}]"
_NO_CONJUNCTS: Final = (
    r"[\x20-\x7e\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}"
    r"\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Thai}]"
)
_LAST_SURE_EDGE: Final = regex.compile(
    rf"(?r)(?<={_ALOOF})(?={_ALOOF})|(?<!\p{{GCB=Prepend}})(?=\p{{GCB=Other}})(?={_NO_CONJUNCTS})"
)
# What str.isspace says; the first group are controls, which no mark joins.
_SPACE_CONTROLS: Final = r"\t-\r\x1c-\x1f\x85\u2028\u2029"
_SPACES: Final = r"\x20\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_LAST_SPACE: Final = regex.compile(rf"(?r)[{_SPACE_CONTROLS}{_SPACES}]")
_LAST_SPACE_ALONE: Final = regex.compile(
    rf"(?r)[{_SPACE_CONTROLS}]"
    rf"|(?<!\p{{GCB=Prepend}})[{_SPACES}](?![\p{{GCB=Extend}}\p{{GCB=ZWJ}}\p{{GCB=SpacingMark}}])"
)


class TooManyChunks(Rejected):
    """A reply that would be more messages than `limit` on its channel."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a reply becomes at most {limit} messages")
        self.limit = limit


class _Full(NamedTuple):
    """A full chunk, before the cut. Its pieces are clusters, but code points in the parts before and behind those:
    where it begins, and where it ends, inside a cluster that is longer than the limit.
    """

    start: int
    clusters_from: int
    clusters_to: int
    end: int


def size_of(text: str, unit: SizeUnit) -> int:
    """The length of `text` in `unit`."""
    codec, width = _CODECS[unit]
    return len(text.encode(codec)) // width


def split_text(text: str, limit: int, unit: SizeUnit) -> tuple[str, ...]:
    """Chunks of at most `limit` units, one where the text fits.

    Raises ValueError for a limit below 4, TooManyChunks above MAX_CHUNKS.
    """
    if limit < _LEAST_LIMIT:
        raise ValueError("a size limit is at least 4 units")
    chunks = tuple(islice(_chunks(clean(text), limit, unit), MAX_CHUNKS + 1))
    if len(chunks) > MAX_CHUNKS:
        raise TooManyChunks(MAX_CHUNKS)
    return chunks


def _chunks(text: str, limit: int, unit: SizeUnit) -> Iterator[str]:
    start = loose_to = 0  # up to `loose_to`: inside a cluster that is longer than the limit
    while (fits := _fitting(text, start, limit, unit)) < len(text):
        full, oversize_to = _fill(text, start, fits, loose_to, limit, unit)
        cut = _cut(text, full)
        yield text[start:cut]
        if cut >= full.clusters_to:
            loose_to = max(loose_to, oversize_to)
        start = cut
    yield text[start:]


def _fitting(text: str, start: int, limit: int, unit: SizeUnit) -> int:
    """The last position so that all from `start` to it is at most `limit` units."""
    codec, width = _CODECS[unit]
    head = text[start : start + limit].encode(codec)[: limit * width]
    return start + len(head.decode(codec, "ignore"))


def _fill(text: str, start: int, fits: int, loose_to: int, limit: int, unit: SizeUnit) -> tuple[_Full, int]:
    """The chunk of all pieces up to `fits`, and where the oversize cluster ends that it ends in (0: in none)."""
    first = max(start, loose_to)
    if fits <= first:
        return _Full(start, fits, fits, fits), 0
    sure = _LAST_SURE_EDGE.search(text, first, fits)
    edge = sure.start() if sure else first
    for cluster in _CLUSTER.finditer(text, edge):
        if cluster.end() > fits:
            break
        edge = cluster.end()
    if edge < fits and size_of(cluster.group(), unit) > limit:
        return _Full(start, first, edge, fits), cluster.end()
    return _Full(start, first, edge, edge), 0


def _cut(text: str, full: _Full) -> int:
    """Where the chunk ends: behind its last line break, else its last space, else with all its pieces."""
    line = text.rfind("\n", full.start, full.end) + 1
    if line and _is_late(text, full, line):
        return line
    space = _last_space(text, full)
    if space and _is_late(text, full, space):
        return space
    return full.end


def _last_space(text: str, full: _Full) -> int:
    """Behind the last piece that is a space, 0 without one."""
    found = (
        _LAST_SPACE.search(text, full.clusters_to, full.end)
        or _LAST_SPACE_ALONE.search(text, full.clusters_from, full.clusters_to)
        or _LAST_SPACE.search(text, full.start, full.clusters_from)
    )
    return found.end() if found else 0


def _is_late(text: str, full: _Full, at: int) -> bool:
    """Whether more pieces of `full` are before `at` than behind it; looks no further than it must."""
    behind = _count(text, full, at, full.end, at - full.start)
    return _count(text, full, full.start, at, behind + 1) > behind


def _count(text: str, full: _Full, start: int, end: int, most: int) -> int:
    """How many pieces are from `start` to `end`; counts clusters up to `most` pieces only."""
    loose = max(0, min(end, full.clusters_from) - start) + max(0, end - max(start, full.clusters_to))
    clusters = _CLUSTER.finditer(text, max(start, full.clusters_from), min(end, full.clusters_to))
    return loose + sum(1 for _ in islice(clusters, max(0, most - loose)))
