"""Strict JSON in and out: one meaning for one input, and only `InvalidJson` for a bad one.

Reading: UTF-8, no NaN, no Infinity, no number that overflows to one, at most `MAX_DEPTH` levels; the last of
two equal keys wins; integers beyond 64 bits become floats; U+0000 and lone surrogate escapes become U+FFFD.
orjson reads everything but lone surrogate escapes, which it refuses; those go through the standard library
with the same rules.
Writing: compact, UTF-8. A non-finite float is written as null, since orjson has no refusal for it.
"""

import json
import re
from typing import Any, Final, NoReturn

import orjson

from schemas.reason import Reason, RefusedRecord
from schemas.text import clean_tree

MAX_DEPTH: Final = 64

_CONTAINERS: Final = (dict, list)
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class InvalidJson(RefusedRecord):
    """Not a JSON text by the rules of this module; `problem` never quotes the input."""

    reason = Reason.INVALID_JSON

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def loads(value: bytes) -> Any:
    """The JSON value in `value`, with storable text only. Raises InvalidJson and nothing else."""
    try:
        tree = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        if not _SURROGATE_ESCAPE.search(value):
            raise InvalidJson(_without_position(error.msg)) from None
        tree = _loads_with_surrogates(value)
    if value.count(b"[") + value.count(b"{") > MAX_DEPTH and _deeper_than(tree, MAX_DEPTH):
        raise InvalidJson("nested too deeply")
    if b"\\u0000" in value or _SURROGATE_ESCAPE.search(value):
        return clean_tree(tree)
    return tree


def dumps(value: object) -> bytes:
    """`value` as compact UTF-8 JSON. Raises TypeError for what JSON cannot hold (lone surrogates
    included).
    """
    return orjson.dumps(value)


def dumps_sorted(value: object) -> bytes:
    """Like `dumps`, with the keys of every object in code point order: the form that digests are taken
    over.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _loads_with_surrogates(value: bytes) -> Any:
    try:
        return json.loads(
            value.decode(), parse_constant=_refuse_constant, parse_float=_finite, parse_int=_int64_or_float
        )
    except UnicodeDecodeError:
        raise InvalidJson("not UTF-8") from None
    except RecursionError:
        raise InvalidJson("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(error.msg) from None


def _refuse_constant(_: str) -> NoReturn:
    raise InvalidJson("NaN and Infinity are not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if number - number != 0.0:
        raise InvalidJson("number out of range")
    return number


def _int64_or_float(digits: str) -> int | float:
    if len(digits) > 20:
        return _finite(digits)
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else float(number)


def _deeper_than(tree: Any, limit: int) -> bool:
    level = [tree] if type(tree) in _CONTAINERS else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) in _CONTAINERS
        ]
    return bool(level)


def _without_position(message: str) -> str:
    return message.split(": line", 1)[0]
