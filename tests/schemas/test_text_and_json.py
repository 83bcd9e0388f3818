"""Strict JSON, and text that every store can hold."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.jsonio import MAX_DEPTH, InvalidJson, dumps, loads
from schemas.text import clean

ANY_TEXT = st.text(st.characters(exclude_categories=()))
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.rule("EN-4")
def test_nul_and_lone_surrogates_become_the_replacement_character() -> None:
    assert clean("a\x00b\ud800c\udfff") == "a\ufffdb\ufffdc\ufffd"


def test_text_without_them_is_the_same_object() -> None:
    text = "äöå 😀 e\u0301"

    assert clean(text) is text


@given(ANY_TEXT)
def test_cleaned_text_is_utf8_without_nul_and_as_long(text: str) -> None:
    assert "\x00" not in clean(text)
    assert len(clean(text).encode().decode()) == len(text)
    assert clean(clean(text)) == clean(text)


@pytest.mark.rule("EN-4")
@pytest.mark.parametrize(
    "value", [b"NaN", b"[Infinity]", b'{"a":-Infinity}', b"1e999", b'["\\ud800",NaN]', b'["\\ud800",1e999]']
)
def test_numbers_that_are_not_finite_are_not_json(value: bytes) -> None:
    with pytest.raises(InvalidJson):
        loads(value)


@pytest.mark.rule("EN-4")
def test_lone_surrogate_escapes_are_read_as_the_replacement_character() -> None:
    assert loads(rb'{"a\udc00":"x\ud800y\u0000 \ud83d\ude00"}') == {"a\ufffd": "x\ufffdy\ufffd 😀"}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf{}",
        b"{}x",
        b"[1,]",
        b'"\x00"',
        b'"\\ud800',
        b'"\\ud800\xff"',
        b"[" * 900_000,
        b'["\\ud800",' + b"[" * 900_000,
    ],
)
def test_what_is_not_json_is_refused_as_such(value: bytes) -> None:
    with pytest.raises(InvalidJson):
        loads(value)


def test_nesting_is_bounded_and_many_shallow_containers_are_not() -> None:
    assert loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert len(loads(b"[" + b"[]," * 9999 + b"[]]")) == 10_000
    with pytest.raises(InvalidJson):
        loads(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize("rest", [b'"x"', b'"\\ud800"'])
def test_both_readers_mean_the_same_by_repeated_keys_and_long_integers(rest: bytes) -> None:
    value = (
        b'{"a":1,"a":123456789012345678901234567890,"b":18446744073709551615,"c":-9223372036854775809,"d":'
        + rest
        + b"}"
    )

    document = loads(value)

    assert document["a"] == 1.2345678901234568e29
    assert isinstance(document["b"], int)
    assert isinstance(document["c"], float)


@given(st.binary() | st.text().map(str.encode) | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_no_input_makes_the_reader_raise_anything_else(value: bytes) -> None:
    with suppress(InvalidJson):
        loads(value)


@given(TREES)
def test_what_was_read_can_be_written_and_read_again(tree: object) -> None:
    once = loads(json.dumps(tree).encode())

    assert loads(dumps(once)) == once
