"""Who and where: the tuples that scope memory, order records and name the caller, each with one canonical
form.

Every part is percent-escaped (UTF-8, all but RFC 3986 unreserved, upper-case hex) and the parts are joined
with `|`, so different tuples never share a key. A conversation's key follows its identity; a record's key
follows the place it came from, which is what Kafka orders by.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field, StringConstraints

from schemas.text import clean

DIRECT: Final = "direct"
MAX_CLAIMS: Final = 64

Id = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=256, pattern=r"^[^\u0000-\u001f\u007f]+$")
]
"""A channel's own id for something: 1 to 256 code points, no control characters."""

_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")

ClaimText = Annotated[str, StringConstraints(strict=True, max_length=1024)]


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller as an adapter or the API verified it; never what a payload says of itself."""

    id: Id
    tenant: Id | None = None
    claims: Annotated[Mapping[ClaimText, ClaimText], Field(max_length=MAX_CLAIMS)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class Identity:
    """The exact scope of conversation memory; equal only when all five parts are."""

    memory_key: str
    channel: str
    account: str
    chat: str
    audience: str

    @property
    def agent(self) -> str:
        """The memory key, which stands for the agent here: agents may share it, and be named otherwise."""
        return self.memory_key

    def key(self) -> bytes:
        """The canonical form, injective over the five parts."""
        return _join(self.memory_key, self.channel, self.account, self.chat, self.audience)

    def digest(self) -> bytes:
        """32 bytes: SHA-256 of `key()`."""
        return sha256(self.key()).digest()


def escape(part: str) -> str:
    """`part` percent-escaped so that it holds unreserved characters and `%` only."""
    return part if _UNRESERVED.fullmatch(part) else quote(clean(part), safe="")


def record_key(channel: str, account: str, chat: str, thread: str | None = None) -> bytes:
    """The Kafka key of an event: `channel|account|chat|thread`, with an empty last part when there is no
    thread.
    """
    return _join(channel, account, chat, thread or "")


def _join(*parts: str) -> bytes:
    return "|".join(map(escape, parts)).encode("ascii")
