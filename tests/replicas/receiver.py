"""The peer that replies are posted to: it logs what it accepts, then answers. `python -m tests.replicas.receiver LOG`

    POST /<channel>                  accepted; every tenth new key gets no answer, a slow address a late one
    GET  /<channel>/accepted?key=..  204 where the key was accepted, else 404

What it accepted outlives it in LOG, one line a request in the order of arrival. Prints its port.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from aiohttp import web

DROPS_EVERY = 10
SLOW = "slow"
SLOW_SECONDS = (1.0, 1.0, 2.6)
"""How long a slow address waits for its answers, in turns: also longer than a conversation waits for a reply."""


class Receiver:
    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._keys: set[tuple[str, str]] = set()
        self._new: Counter[str] = Counter()
        self._slow: Counter[str] = Counter()

    async def accept(self, request: web.Request) -> web.StreamResponse:
        at_ns, channel = time.monotonic_ns(), request.match_info["channel"]
        said = await request.json()
        key, address = said["key"], said["address"]
        new = (channel, key) not in self._keys
        self._keys.add((channel, key))
        self._new[channel] += new
        dropped = new and self._new[channel] % DROPS_EVERY == 0
        line = {"at_ns": at_ns, "channel": channel, "key": key, "address": address, "text": said["text"]}
        os.write(self._log, json.dumps({**line, "answered": not dropped}).encode() + b"\n")
        if dropped:
            assert request.transport is not None
            request.transport.close()
        elif address.startswith(SLOW):
            self._slow[address] += 1
            await asyncio.sleep(SLOW_SECONDS[self._slow[address] % len(SLOW_SECONDS)])
        return web.Response(status=200)

    async def tell(self, request: web.Request) -> web.Response:
        known = (request.match_info["channel"], request.query["key"]) in self._keys
        return web.Response(status=204 if known else 404)


async def serve(log: Path) -> None:
    receiver, app = Receiver(log), web.Application()
    app.router.add_post("/{channel}", receiver.accept)
    app.router.add_get("/{channel}/accepted", receiver.tell)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
