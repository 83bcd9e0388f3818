"""`parley dev` serves a chat, keeps the conversation over a restart, and ends soon after ctrl-c."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx

from tests.cli.desk import Terminal
from tests.support.waiting import eventually

SOON = timedelta(seconds=60)
STOPS_WITHIN_SECONDS = 20


@asynccontextmanager
async def dev(data: Path) -> AsyncIterator[tuple[str, str]]:
    """The page's address and the database's, while `parley dev` runs; stopped by SIGINT it must end by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from workers.cli import main; main()",
        *("dev", "--port", "0", "--data", str(data)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SOON.total_seconds()):
            async for line in process.stdout:
                if b" is at http://" in line:
                    address = line.split(b" is at ")[1].split()[0].decode().rstrip("/")
                if b"export PARLEY_DATABASE_URL=" in line:
                    yield address, line.split(b"=", 1)[1].split()[0].decode()
                    break
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), SOON.total_seconds()) == 0
        assert time.monotonic() - asked < STOPS_WITHIN_SECONDS
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def say(page: httpx.AsyncClient, text: str) -> None:
    async def accepted() -> bool:
        headers = {"origin": str(page.base_url).rstrip("/")}
        return (await page.post("/web/messages", json={"text": text}, headers=headers)).status_code == 202

    await eventually("the message was accepted", accepted, SOON)


async def heard(page: httpx.AsyncClient, words: str) -> bool:
    """Whether a reply with these words stands in the visitor's own events."""
    async with page.stream("GET", "/web/events", timeout=SOON.total_seconds()) as events:
        async for line in events.aiter_lines():
            if line.startswith("data:") and words in json.dumps(json.loads(line[5:]), ensure_ascii=False):
                return True
    return False


async def test_a_chat_is_served_and_remembered_over_a_restart(tmp_path: Path) -> None:
    async with dev(tmp_path / "data") as (address, database), httpx.AsyncClient(base_url=address) as page:
        assert "<html" in (await page.get("/")).text
        await say(page, "Remember that my parcel goes to Lisbon")
        assert await heard(page, "I will remember")
        cookies = page.cookies
        operator = Terminal(tmp_path, {"PARLEY_DATABASE_URL": database})
        inspected = await asyncio.to_thread(operator.parley, "conversations", "inspect", "1")
        assert "Remember that my parcel goes to Lisbon" in inspected.out

    async with dev(tmp_path / "data") as (address, _):
        jar = {cookie.name: cookie.value or "" for cookie in cookies.jar}
        async with httpx.AsyncClient(base_url=address, cookies=jar) as page:
            await say(page, "Where does my parcel go?")
            assert await heard(page, "You told me")
