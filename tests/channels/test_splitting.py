"""Chunks fit in the channel's own unit and never cut what a reader sees as one character."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from schemas.text import clean
from workers.channels.port import SizeUnit
from workers.channels.splitting import size_of, split_text

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
UNITS: list[SizeUnit] = ["utf16", "codepoint", "utf8"]


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
