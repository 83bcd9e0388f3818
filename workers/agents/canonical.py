"""The journal's two encodings: a digest of what a step was called with, and its result as strict JSON.

JSON values, dataclasses, pydantic models, dates, UUIDs, enums, decimals, paths, bytes and sets are understood; anything
else is refused by type, never written as its repr. NaN and Infinity become null; U+0000 and lone surrogates U+FFFD.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from pathlib import PurePath
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter

from schemas import jsonio
from schemas.text import clean
from workers.agents.errors import NotJournalable

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_PLAIN = orjson.OPT_NON_STR_KEYS


def args_digest(name: str, args: object) -> bytes:
    """32 bytes: SHA-256 over the canonical JSON of (name, args). Raises NotJournalable."""
    try:
        return sha256(_dumps((name, args), _SORTED)).digest()
    except TypeError as error:
        raise NotJournalable(name, "argument", _type_at_fault(error, args)) from None


def encode_result(name: str, value: object) -> bytes:
    """`value` as strict JSON that every store can hold. Raises NotJournalable."""
    try:
        written = _dumps(value, _PLAIN)
    except TypeError as error:
        raise NotJournalable(name, "result", _type_at_fault(error, value)) from None
    if b"\\u0000" in written:
        return jsonio.dumps(jsonio.loads(written))
    return written


def decode_result(result: bytes | None, returns: Any = None) -> Any:
    """The value that `encode_result` wrote: plain data, or validated as the type `returns`."""
    if result is None:
        return None
    if returns is None:
        return jsonio.loads(result)
    return _adapter(returns).validate_json(result)


def _dumps(value: object, option: int) -> bytes:
    try:
        return orjson.dumps(value, default=_plain, option=option)
    except TypeError:
        return orjson.dumps(_cleaned(value), default=_plain, option=option)


def _plain(value: Any) -> Any:
    """What orjson asks for a type it does not know; dataclasses, dates, UUIDs and enums it does."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return [orjson.Fragment(member) for member in sorted(_dumps(member, _SORTED) for member in value)]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Decimal | PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise _Unknown(type(value).__qualname__)


class _Unknown(TypeError):
    def __init__(self, type_name: str) -> None:
        super().__init__(type_name)
        self.type_name = type_name


def _cleaned(value: Any) -> Any:
    """`value` with storable text, for what orjson refused at first."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(key) if isinstance(key, str) else key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def _type_at_fault(error: TypeError, value: object) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _Unknown):
            return cause.type_name
        cause = cause.__cause__ or cause.__context__
    return f"inside {type(value).__qualname__}"


@lru_cache(maxsize=256)
def _adapter(returns: Any) -> TypeAdapter[Any]:
    return TypeAdapter(returns)
