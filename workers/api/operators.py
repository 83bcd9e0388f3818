"""Who may ask as an operator: static tokens, of which a file keeps only the digests.

A line is a name and the SHA-256 of the token as 64 hex digits; `#` starts a comment line. A name may stand twice, for
a change of token without a gap. The file must not be readable or writable by everybody. It is read again when it
changes; a broken edit, a vanished file and an empty one keep the last good tokens and are reported, a file that holds
a comment and no line revokes all. No cookie is looked at, so no page of another site can act for an operator.
"""

import hmac
import re
import secrets
import stat
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog
from fastapi import Request

from schemas.errors import Misconfigured
from schemas.watched import WatchedFile
from workers.api.problems import Problem
from workers.api.rate import RateLimit
from workers.telemetry.metrics import Metrics

CHALLENGE: Final = 'Bearer realm="parley operators"'
PREFIX: Final = "parley_op_"
REFUSED_BURST: Final = 20
REFUSED_PER_SECOND: Final = 0.5
MAX_FILE_BYTES: Final = 1024 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_LINE: Final = re.compile(rf"({_NAME.pattern})[ \t]+([0-9a-f]{{64}})", re.ASCII)
_BEARER: Final = re.compile(r"bearer ([\x21-\x7e]{1,256})", re.ASCII | re.IGNORECASE)

log = structlog.get_logger(__name__)


class TokenFileProblem(Misconfigured):
    """The file cannot be used; `line` is 0 when the whole file is meant. Never holds a token or its digest."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


def new_token(name: str) -> tuple[str, str]:
    """A token of 256 random bits for `name`, to be handed over once, and the line of the file that lets it in.

    Raises ValueError.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError("a name is 1 to 64 of A-Z a-z 0-9 . _ @ -")
    token = PREFIX + secrets.token_urlsafe(32)
    return token, f"{name} {sha256(token.encode()).hexdigest()}"


@dataclass(slots=True)
class OperatorTokens:
    """The tokens of one file, current within a second of `clock` (monotonic seconds).

    The first read happens in the constructor and raises TokenFileProblem; later problems go to `on_problem`, once
    each time the file changes.
    """

    path: Path
    clock: Callable[[], float] = time.monotonic
    on_problem: Callable[[TokenFileProblem], None] = lambda problem: None
    _entries: tuple[tuple[str, bytes], ...] = field(init=False, repr=False)
    _watched: WatchedFile = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._watched = WatchedFile(self.path, self.clock)
        self._entries = self._read()

    def operator(self, authorization: str | None) -> str | None:
        """Whose token an `Authorization` header bears, or None. Every entry is compared, each in constant time."""
        self._refresh()
        match = _BEARER.fullmatch(authorization or "")
        if match is None:
            return None
        presented = sha256(match[1].encode()).digest()
        names = [name for name, digest in self._entries if hmac.compare_digest(digest, presented)]
        return names[0] if names else None

    def _refresh(self) -> None:
        if not self._watched.changed():
            return
        try:
            self._entries = self._read()
        except TokenFileProblem as problem:
            self.on_problem(problem)

    def _read(self) -> tuple[tuple[str, bytes], ...]:
        try:
            status = self.path.stat()
            if status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
                raise TokenFileProblem(self.path, 0, "is open to everybody: chmod o-rw it")
            if status.st_size > MAX_FILE_BYTES:
                raise TokenFileProblem(self.path, 0, "is too large")
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise TokenFileProblem(self.path, 0, error.strerror or "cannot be read") from None
        except UnicodeDecodeError:
            raise TokenFileProblem(self.path, 0, "is not UTF-8") from None
        if not text.strip():
            raise TokenFileProblem(self.path, 0, "is empty")
        return _parse(self.path, text)


def operator_in(tokens: OperatorTokens, metrics: Metrics) -> Callable[[Request], Awaitable[str]]:
    """A dependency that gives the asking operator's name, for the audit; raises Problem 401, or 429.

    Only refusals are limited, by address: whoever fails often is told to wait, and a good token behind the same
    address goes on to be let in.
    """
    refusals = RateLimit(REFUSED_BURST, REFUSED_PER_SECOND, tokens.clock)

    async def operator(request: Request) -> str:
        borne = request.headers.getlist("authorization")
        name = tokens.operator(borne[0]) if len(borne) == 1 else None
        if name is not None:
            metrics.operator_logins.labels("accepted").inc()
            return f"operator:{name}"
        metrics.operator_logins.labels("refused").inc()
        if wait_s := refusals.wait_s(request.client.host if request.client else ""):
            raise Problem(429, retry_after_s=wait_s)
        log.warning("operator.refused", presented=bool(borne))
        raise Problem(401, headers={"www-authenticate": CHALLENGE})

    return operator


def _parse(path: Path, text: str) -> tuple[tuple[str, bytes], ...]:
    entries: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not (written := line.strip()) or written.startswith("#"):
            continue
        match = _LINE.fullmatch(written)
        if match is None:
            raise TokenFileProblem(
                path, number, "a line is NAME SHA256, as made by `parley operators token NAME`"
            )
        digest = bytes.fromhex(match[2])
        if digest in entries:
            raise TokenFileProblem(path, number, "this token stands there twice")
        entries[digest] = match[1]
    return tuple((name, digest) for digest, name in entries.items())
