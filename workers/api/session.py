"""Who a visitor is: a chat and a principal in a signed cookie, made at the first visit.

`v1.chat.principal.issued.signature`: HMAC-SHA256 over everything before the signature and the channel's name,
compared in constant time. A cookie proves nothing but itself: it is the visitor's only login, and it ends.
"""

import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

LIFETIME: Final = timedelta(days=90)

_COOKIE = re.compile(r"v1\.([0-9a-f]{32})\.([0-9a-f]{32})\.([1-9][0-9]{0,11})\.([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Visitor:
    """`chat` names the mailbox, `principal` the person; neither can be derived from the other."""

    chat: str
    principal: str

    @classmethod
    def new(cls) -> "Visitor":
        """Someone nobody has seen before."""
        return cls(secrets.token_hex(16), secrets.token_hex(16))


def write_cookie(visitor: Visitor, channel: str, keys: Sequence[bytes], now: datetime) -> str:
    """The cookie's value, signed with the first of `keys`."""
    claim = f"v1.{visitor.chat}.{visitor.principal}.{int(now.timestamp())}"
    return f"{claim}.{_sign(keys[0], channel, claim)}"


def read_cookie(cookie: str | None, channel: str, keys: Sequence[bytes], now: datetime) -> Visitor | None:
    """The visitor that one of `keys` vouches for, or None: forged, of another channel, or too old."""
    match = _COOKIE.fullmatch(cookie or "")
    if match is None:
        return None
    chat, principal, issued, signature = match.groups()
    claim = f"v1.{chat}.{principal}.{issued}"
    proven = [hmac.compare_digest(_sign(key, channel, claim), signature) for key in keys]
    age_s = now.timestamp() - int(issued)
    if not any(proven) or not -300 <= age_s <= LIFETIME.total_seconds():
        return None
    return Visitor(chat, principal)


def _sign(key: bytes, channel: str, claim: str) -> str:
    return hmac.digest(key, f"parley.web\n{channel}\n{claim}".encode(), "sha256").hex()
