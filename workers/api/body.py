"""A body is read up to a bound and within a time, and all bodies together fit in a room of bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from workers.api.problems import Problem

ROOM_BYTES: Final = 64 * 1024 * 1024
READ_WITHIN: Final = timedelta(seconds=10)


class BodyRoom:
    """Bytes of request bodies that may be held at once; who finds no room is told to come again."""

    def __init__(self, limit_bytes: int = ROOM_BYTES, read_within: timedelta = READ_WITHIN) -> None:
        self._read_within_s = read_within.total_seconds()
        self._limit = limit_bytes
        self.held = 0

    @asynccontextmanager
    async def body_of(self, request: Request, at_most: int) -> AsyncIterator[bytes]:
        """The whole body, at most `at_most` bytes; raises Problem 413 before a longer one is read, 400, 408, 503."""
        size = _declared(request)
        if size is not None and size > at_most:
            raise Problem(413)
        reserved = at_most if size is None else size
        if self.held + reserved > self._limit:
            raise Problem(503, retry_after_s=1)
        self.held += reserved
        try:
            yield await self._read(request, at_most)
        finally:
            self.held -= reserved

    async def _read(self, request: Request, at_most: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._read_within_s):
                async for part in request.stream():
                    size += len(part)
                    if size > at_most:
                        raise Problem(413)
                    parts.append(part)
        except TimeoutError:
            raise Problem(408) from None
        except ClientDisconnect:
            raise Problem(400) from None
        return b"".join(parts)


def _declared(request: Request) -> int | None:
    length = request.headers.get("content-length")
    if length is None:
        return None
    if not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise Problem(400)
    return int(length)
