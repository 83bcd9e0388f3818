"""Chunks fit in the channel's own unit and never cut what a reader sees as one character."""

import time
from datetime import timedelta

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from schemas.text import clean
from tests.channels.plain_splitting import split_plainly
from workers.channels.port import SizeUnit
from workers.channels.splitting import MAX_CHUNKS, TooManyChunks, size_of, split_text

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
UNITS: list[SizeUnit] = ["utf16", "codepoint", "utf8"]
FLAG, LONE_HALF, PREPENDED = "\U0001f1eb\U0001f1ee", "\U0001f1eb", "\u0600"
HARD = [
    *(
        "a",
        "\u00e9",
        "\u0436",
        "\u05d0",
        "\u05b0",
        "\u0627",
        "\u064b",
        "\u0e01",
        "\u0e49",
        "\u0e33",
        "\u6f22",
    ),
    *(
        " ",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2003",
        "\u2028",
        "\u200b",
        "\xad",
        "\x00",
        "\ud800",
    ),
    *(
        "\u0301",
        "\u0301" * 30,
        "\u200d",
        "\ufe0f",
        "\u0903",
        PREPENDED,
        PREPENDED + " ",
        " \u0301",
        "\n\u0301",
    ),
    *(FAMILY, FLAG, LONE_HALF, FLAG * 9, "\U0001f600", "\U0001f44d\U0001f3fb", "\u2764\ufe0f", "\xa9"),
    *("\u0915", "\u094d", "\u0915\u094d\u0937", "\u1100", "\u1161", "\u11a8", "\uac00", "\uac01"),
]
"""What joins, what never does, what looks like a space and is none, and clusters without end."""
HUGE = 2 * 1024 * 1024


@pytest.mark.rule("EN-36")
def test_emoji_without_spaces_are_measured_in_utf16_units() -> None:
    chunks = split_text("\U0001f600" * 50, 40, "utf16")

    assert [size_of(chunk, "utf16") for chunk in chunks] == [40, 40, 20]


@pytest.mark.rule("EN-36")
@pytest.mark.parametrize("whole", [FAMILY, "\U0001f1eb\U0001f1ee", "e\u0301\u0323", "\u2764\ufe0f", "\r\n"])
def test_a_cluster_across_the_cut_goes_whole_into_the_next_chunk(whole: str) -> None:
    reply = "x" * 39 + whole + "y" * 10

    chunks = split_text(reply, 40, "utf16")

    assert chunks == ("x" * 39, whole + "y" * 10)


def test_words_stay_whole_where_they_can() -> None:
    assert split_text("aaaa bbbb cccc dddd", 12, "codepoint") == ("aaaa bbbb ", "cccc dddd")
    assert split_text("aaaa\nbb cc dd ee", 8, "codepoint") == ("aaaa\n", "bb cc ", "dd ee")


def test_a_cluster_longer_than_the_limit_is_cut_between_code_points() -> None:
    chunks = split_text("a" + "\u0301" * 100, 40, "utf8")

    assert "".join(chunks) == "a" + "\u0301" * 100
    assert max(size_of(chunk, "utf8") for chunk in chunks) <= 40


@pytest.mark.rule("EN-36")
@given(
    text=st.text(alphabet=st.one_of(st.characters(), st.sampled_from(f"{FAMILY} \n\u0301")), max_size=300),
    limit=st.integers(4, 60),
    unit=st.sampled_from(UNITS),
)
def test_any_text_fits_joins_again_and_is_cut_at_clusters(text: str, limit: int, unit: SizeUnit) -> None:
    chunks = split_text(text, limit, unit)

    assert "".join(chunks) == clean(text)
    assert all(size_of(chunk, unit) <= limit for chunk in chunks)
    clusters = regex.findall(r"\X", clean(text))
    if all(size_of(cluster, unit) <= limit for cluster in clusters):
        edges, position = {0}, 0
        for cluster in clusters:
            position += len(cluster)
            edges.add(position)
        cut = 0
        for chunk in chunks:
            cut += len(chunk)
            assert cut in edges


@pytest.mark.rule("EN-36")
@given(
    parts=st.lists(
        st.builds(
            str.__mul__, st.one_of(st.sampled_from(HARD), st.characters()), st.sampled_from([1, 1, 2, 7, 40])
        ),
        max_size=40,
    ),
    limit=st.integers(4, 60),
    unit=st.sampled_from(UNITS),
)
def test_every_text_is_cut_as_if_each_piece_of_it_was_looked_at(
    parts: list[str], limit: int, unit: SizeUnit
) -> None:
    text = "".join(parts)

    assert split_text(text, limit, unit) == split_plainly(text, limit, unit)


def test_the_spaces_are_those_of_python() -> None:
    spaces = [chr(code) for code in range(0x110000) if chr(code).isspace() and chr(code) not in "\r\n"]

    assert {split_text(f"aaa{space}bb", 4, "codepoint")[0][3:] for space in spaces} == set(spaces)
    assert split_text("aaa\u200bbb", 5, "codepoint") == ("aaa\u200bb", "b")


ROWS = {
    "words": "lorem ipsum ",
    "one word": "z",
    "ideographs": "\u6f22",
    "accents": "e\u0301",
    "tones": "\u0e01\u0e49",
    "no spaces": " \u0301",
    "families": FAMILY,
    "flags": FLAG,
    "marks": "\u0301",
    "halves": f"{'z' * 2049} {'z' * 2046}",
}


@pytest.mark.parametrize("piece", ROWS.values(), ids=ROWS)
def test_the_longest_reply_is_split_in_a_moment(piece: str) -> None:
    text = piece * (HUGE // len(piece.encode()))
    started = time.thread_time()

    chunks = split_text(text, 4096, "utf16")

    assert timedelta(seconds=time.thread_time() - started) < timedelta(seconds=1)
    assert "".join(chunks) == text


def test_a_reply_of_too_many_messages_is_refused_at_once() -> None:
    assert len(split_text("z" * 4 * MAX_CHUNKS, 4, "utf8")) == MAX_CHUNKS
    started = time.thread_time()

    with pytest.raises(TooManyChunks, match="at most 1000 messages"):
        split_text("z" * HUGE, 4, "utf8")

    assert time.thread_time() - started < 0.5
