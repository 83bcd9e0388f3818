"""No secret survives in a log line: not by the name of its field, not inside any text, tracebacks included.

Texts come from third parties and may be malformed, so each pattern takes too much rather than too little: a
DSN without an end loses everything up to the next white space or quote.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MASK = "***"
_DEEP = 6
_LONG = 20_000
_SHORT = 64
_IS_ID = re.compile(r"[0-9a-f-]{1,40}")

_SECRET_NAMES = re.compile(
    r"token|secret|passw(or)?d|pwd|signature|authorization|api_?key|private_?key|cookie|credential|dsn"
    r"|database_url|^text$|^body$|^prompt$|^content$|_text$|_body$",
    re.IGNORECASE,
)
_COUNTS = re.compile(
    r"^(input_|output_|total_|max_)?tokens$|_(bytes|count|hash|id|kind|length|seconds)$", re.IGNORECASE
)

_DATABASES = r"(?:postgres(?:ql)?|amqps?|rediss?|mysql|kafka)(?:\+\w+)?"
_QUOTED = r"(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?)"

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), mask)
    for pattern, mask in (
        # database://user:password@host, where the password may hold @, /, :, quotes and blanks
        (rf"\b({_DATABASES}:/{{0,3}}[^\s:/@]*):[^\n@]{{0,200}}(?:@[^\s@]*)*@", rf"\1:{MASK}@"),
        # the same cut off before its @; not host:port
        (rf"\b({_DATABASES}:/{{1,3}}[^\s:/@'\"]+):(?!\d{{1,5}}(?:[/?\s,'\"]|$))[^\s'\"@*]+", rf"\1:{MASK}"),
        (r"\b([a-z][a-z0-9+.\-]{0,40}:/{1,3}[^\s:/@'\"<>]*):[^\s]*@", rf"\1:{MASK}@"),
        # user:password@host without a scheme
        (r"(?<![\w/:.+\-])([\w.+\-]+):[^\s:@/*'\"]{3,}@(?=[\w\[])", rf"\1:{MASK}@"),
        # what URL parsers say about the part of a password they took for something else
        (rf"(integer value (?:as )?|base 10: |percent-encoded token: |after )({_QUOTED})", rf"\1{MASK}"),
        (
            r"((?:password|passwd|pwd|secret|token|api_?key|signature)[\"']?\s*[=:]\s*)"
            rf"(?:{_QUOTED}|[^\s,;&)\]}}]+)",
            rf"\1{MASK}",
        ),
        # what pydantic, asyncpg and Postgres quote of a value they refuse: message texts among it
        (r"(input_value=)(?:.*(?=, input_type=)|.*)", rf"\1{MASK}"),
        (r"(invalid input for query argument \$\d+: )[^\n]*", rf"\1{MASK}"),
        (r"(failing row contains )[^\n]*", rf"\1{MASK}"),
        (r"\b(bearer|basic)\s+[a-z0-9._~+/=\-]{4,}", rf"\1 {MASK}"),
        (r"\bwhs(ec|k|pk)_[a-z0-9+/=_\-]+", rf"whs\1_{MASK}"),
        (r"\b(v1a?),[a-z0-9+/=_\-]{8,}", rf"\1,{MASK}"),
        (r"/bot\d*:?[a-z0-9_:\-]{6,}", f"/bot{MASK}"),
        (r"\b\d{6,12}:[a-z0-9_\-]{30,}", MASK),
        (r"\b(xox[abeprs]|xapp)-[a-z0-9\-]{6,}", rf"\1-{MASK}"),
        (r"\b(sk|pk|rk)-[a-z0-9_\-]{16,}", rf"\1-{MASK}"),
    )
)


# What every pattern above needs at least: a text without any of it is an id or a plain word, and is left alone.
_SUSPICIOUS = re.compile(
    r"[@=]|:/|passw|pwd|secret|token|api_?key|signature|\bwhs|v1a?,|/bot|xox|xapp|[spr]k-|bearer|basic|\d{6}:"
    r"|failing row|invalid input|input_value|integer value|base 10|percent-encoded|after ",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a field of this name is masked whatever it holds."""
    return bool(_SECRET_NAMES.search(name)) and not _COUNTS.search(name)


def redact_text(text: str) -> str:
    """The text with everything that looks like a secret masked; at most 20,000 characters of it."""
    if _IS_ID.fullmatch(text):
        return text
    return _redact_short(text) if len(text) <= _SHORT else _redact(text)


def _redact(text: str) -> str:
    if len(text) > _LONG:
        text = f"{text[:_LONG]}...[{len(text) - _LONG} characters cut]"
    if _SUSPICIOUS.search(text) is None:
        return text
    for pattern, mask in _PATTERNS:
        text = pattern.sub(mask, text)
    return text


# Names of events, agents, channels and outcomes come again with every line.
_redact_short = lru_cache(maxsize=4096)(_redact)


def redact(name: str, value: Any, depth: int = 0) -> Any:
    """The value as a log line may show it under `name`."""
    if type(value) is str:
        return MASK if is_secret_name(name) else redact_text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value if not is_secret_name(name) or isinstance(value, bool) else MASK
    if is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return redact_text(value)
    if depth >= _DEEP:
        return MASK
    if isinstance(value, Mapping):
        return {redact_text(str(k)): redact(str(k), v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [redact(name, item, depth + 1) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    return redact_text(str(value))
