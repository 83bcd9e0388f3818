"""An operator of the run, who looks at its conversations over HTTP now and then."""

import asyncio
from http import HTTPStatus
from typing import Final

import aiohttp

from deploy.checks.live.processes import ProcessFailed

_EVERY_SECONDS: Final = 1


async def look_on(api_port: int, token: str) -> None:
    """List the newest conversations until cancelled. Raises ProcessFailed where the token does not let in."""
    url = f"http://127.0.0.1:{api_port}/v1/operator/conversations"
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as http:
        while True:
            async with http.get(url) as answer:
                if answer.status == HTTPStatus.UNAUTHORIZED:
                    raise ProcessFailed(f"{url}: the operator's token is refused")
            await asyncio.sleep(_EVERY_SECONDS)
