"""Canonical forms of identities and record keys."""

from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.identity import Identity, record_key

PARTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00") | st.sampled_from("|%/. "),
    max_size=8,
)
IDENTITIES = st.builds(Identity, PARTS, PARTS, PARTS, PARTS, PARTS)


@pytest.mark.rule("EN-1")
@given(st.tuples(PARTS, PARTS, PARTS, PARTS), st.tuples(PARTS, PARTS, PARTS, PARTS))
@example(("a|b", "c", "d", "e"), ("a", "b|c", "d", "e"))
@example(("a", "b", "c", "|"), ("a", "b", "c|", ""))
def test_two_places_share_a_record_key_only_when_they_are_equal(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    assert (record_key(*one) == record_key(*other)) == (one == other)
    assert tuple(unquote(part) for part in record_key(*one).decode("ascii").split("|")) == one


@pytest.mark.rule("EN-1")
def test_a_record_key_is_percent_escaped_and_ends_empty_without_a_thread() -> None:
    assert record_key("telegram:support", "bot 7", "a|b%ä") == b"telegram%3Asupport|bot%207|a%7Cb%25%C3%A4|"


@given(IDENTITIES, IDENTITIES)
@example(Identity("a|b", "c", "d", "e", "f"), Identity("a", "b|c", "d", "e", "f"))
def test_two_identities_share_a_key_only_when_they_are_equal(one: Identity, other: Identity) -> None:
    assert (one.key() == other.key()) == (one == other)
    assert (one.digest() == other.digest()) == (one == other)
    assert len(one.digest()) == 32
