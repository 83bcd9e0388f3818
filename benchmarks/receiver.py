"""The peer that both sides post to: it notes each request in memory and answers 200 at once.

    POST /anything   noted as (monotonic ns, webhook-id, body)
    GET  /count      how many were noted since the last dump
    POST /dump       the body is a path: writes the notes there as JSON lines, and forgets them

One connection carries one request after the other, each with a content-length, as HTTP clients send them
without being asked for anything else.
"""

import asyncio
import gc
import json
import re
import time
from pathlib import Path
from typing import cast

import uvloop

from benchmarks.processes import say

HOST = "127.0.0.1"
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_ID = re.compile(rb"(?i)\r\nwebhook-id: *([^\r]+)")
_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

Note = tuple[int, bytes, bytes]


class Connection(asyncio.Protocol):
    """One client; `notes` is shared by all."""

    def __init__(self, notes: list[Note]) -> None:
        self._notes = notes
        self._left = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        data = self._left + data if self._left else data
        while (head := data.find(_END)) >= 0:
            length = _LENGTH.search(data, 0, head)
            start = head + len(_END)
            end = start + (int(length[1]) if length else 0)
            if len(data) < end:
                break
            self._answer(now, data, head, data[start:end])
            data = data[end:]
        self._left = data

    def _answer(self, now: int, data: bytes, head: int, body: bytes) -> None:
        assert self._transport is not None
        if data.startswith(b"GET /count"):
            self._transport.write(_counted(len(self._notes)))
        elif data.startswith(b"POST /dump"):
            dump(self._notes, Path(body.decode()))
            self._transport.write(_OK)
        else:
            found = _ID.search(data, 0, head)
            self._notes.append((now, found[1] if found else b"", body))
            self._transport.write(_OK)


def dump(notes: list[Note], path: Path) -> None:
    """Write the notes as JSON lines and clear them."""
    with path.open("w", encoding="utf-8") as file:
        for at, webhook_id, body in notes:
            file.write(json.dumps({"at": at, "id": webhook_id.decode(), "body": body.decode()}) + "\n")
    notes.clear()


def _counted(count: int) -> bytes:
    text = str(count).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)


async def serve() -> None:
    """Listen on a free port, say which, run until ended by a signal."""
    notes: list[Note] = []
    server = await asyncio.get_running_loop().create_server(lambda: Connection(notes), HOST, 0, backlog=512)
    say(port=server.sockets[0].getsockname()[1])
    gc.disable()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
