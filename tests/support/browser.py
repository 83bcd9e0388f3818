"""A headless Chromium, driven over the DevTools protocol: open a page, type, ask, look.

A test that needs it is skipped where no Chromium is installed; with REQUIRE_BROWSER=1 it fails.
"""

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.waiting import PATIENCE, eventually

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
START_WITHIN = timedelta(seconds=60)


def chromium() -> str:
    """Where the browser is; skips the test where it is not."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if os.environ.get("REQUIRE_BROWSER", "") not in ("", "0"):
        pytest.fail("no Chromium is installed")
    pytest.skip("no Chromium is installed")


class Tab:
    """One open page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One DevTools command and its result; events in between are dropped."""
        self._last += 1
        await self._socket.send_str(json.dumps({"id": self._last, "method": method, "params": parameters}))
        async with asyncio.timeout(PATIENCE.total_seconds()):
            while (answer := await self._socket.receive_json()).get("id") != self._last:
                pass
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    async def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until the expression is true in the page."""
        return await eventually(expression, lambda: self.ask(expression))

    async def type(self, text: str) -> None:
        """Put text where the focus is, as a keyboard does, and press Enter."""
        await self.call("Input.insertText", text=text)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **enter)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **enter)

    async def reload(self) -> None:
        """Load the page anew; returns when the old one is gone."""
        await self.ask("window.isOld = true")
        await self.call("Page.reload")
        await self.until("window.isOld === undefined")

    async def screenshot(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def open_tab(url: str, profile: Path, width: int = 900, height: int = 640) -> AsyncIterator[Tab]:
    """A page of a fresh browser at `url`; the browser ends with the block."""
    process = await asyncio.create_subprocess_exec(
        chromium(),
        *FLAGS,
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port_file = profile / "DevToolsActivePort"
        lines = await eventually("the browser listens", lambda: _lines_of(port_file), START_WITHIN)
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
                [page] = [each for each in await answer.json() if each["type"] == "page"]
            async with http.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                await tab.call("Emulation.setDeviceMetricsOverride", **size)
                await tab.call("Page.navigate", url=url)
                yield tab
    finally:
        process.kill()
        await process.wait()


def _lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
