"""Canonical forms of identities and record keys."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.identity import Identity, InvalidRecordKey, parse_record_key, record_key

PARTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00") | st.sampled_from("|%/. "),
    max_size=8,
)
IDENTITIES = st.builds(Identity, PARTS, PARTS, PARTS, PARTS, PARTS)


@pytest.mark.rule("EN-1")
@given(PARTS, PARTS, PARTS, PARTS)
def test_a_record_key_gives_its_four_parts_back(channel: str, account: str, chat: str, thread: str) -> None:
    assert parse_record_key(record_key(channel, account, chat, thread)) == (channel, account, chat, thread)


@pytest.mark.rule("EN-1")
def test_a_record_key_is_percent_escaped_and_ends_empty_without_a_thread() -> None:
    assert record_key("telegram:support", "bot 7", "a|b%ä") == b"telegram%3Asupport|bot%207|a%7Cb%25%C3%A4|"


@given(st.binary(max_size=30) | st.text("ab|%2fF0", max_size=12).map(str.encode))
@example(b"a|b|c|%2f")
@example(b"a|b|c|%")
@example(b"a|b|c|%FF")
@example(b"a|b|c")
def test_a_key_is_read_only_in_its_canonical_form(key: bytes) -> None:
    try:
        parts = parse_record_key(key)
    except InvalidRecordKey:
        return
    assert record_key(*parts) == key


@given(IDENTITIES, IDENTITIES)
@example(Identity("a|b", "c", "d", "e", "f"), Identity("a", "b|c", "d", "e", "f"))
def test_two_identities_share_a_key_only_when_they_are_equal(one: Identity, other: Identity) -> None:
    assert (one.key() == other.key()) == (one == other)
    assert (one.digest() == other.digest()) == (one == other)
    assert len(one.digest()) == 32
