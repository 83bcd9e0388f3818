"""Who a visitor is: a chat and a principal in a signed cookie, made at the first visit.

`v1.chat.principal.issued.signature`: HMAC-SHA256 over everything before the signature and the channel's name,
compared in constant time. A cookie proves nothing but itself: it is the visitor's only login, and it ends.
"""

import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fastapi import Request, Response

from workers.api.problems import Problem
from workers.channels.web import WebChannel

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


class Sessions:
    """The visitors of one web channel, by their cookie."""

    def __init__(self, channel: WebChannel, now: Callable[[], datetime]) -> None:
        self._channel = channel
        self._now = now
        self.cookie = f"parley_{channel.name}"

    def visitor(self, request: Request) -> Visitor:
        """Who asks. Raises Problem 401 where the cookie proves nobody."""
        visitor = self._read(request)
        if visitor is None:
            raise Problem(401, "no_session")
        return visitor

    def renew(self, request: Request, response: Response) -> None:
        """Give the visitor a fresh cookie for the same chat, and a stranger one for a new chat."""
        visitor = self._read(request) or Visitor.new()
        response.set_cookie(
            self.cookie,
            write_cookie(visitor, self._channel.name, self._channel.secrets, self._now()),
            max_age=int(LIFETIME.total_seconds()),
            secure=self._channel.https or request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )

    def _read(self, request: Request) -> Visitor | None:
        cookie = request.cookies.get(self.cookie)
        return read_cookie(cookie, self._channel.name, self._channel.secrets, self._now())


def _sign(key: bytes, channel: str, claim: str) -> str:
    return hmac.digest(key, f"parley.web\n{channel}\n{claim}".encode(), "sha256").hex()
