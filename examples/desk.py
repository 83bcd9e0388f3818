"""A restaurant's front desk as a plain function agent: `parley dev examples.desk:app` serves it in the browser.

`turn.step` and `turn.reply` are journalled. When the worker dies, the function runs again from its start: what was
journalled comes back as it was, and only what was in flight is done again. That is what `turn.effect_id` is for.
"""

import os
import re
from typing import Final

from schemas.signing import SigningKey
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.web import WebChannel
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations

_TABLE: Final = re.compile(r"table for (\d+)", re.IGNORECASE)

# For trying things out; a deployment gives its own, and reads signing keys from a key file.
_SECRET: Final = os.environ.get("DESK_SECRET", "only-for-trying-things-out")
_KEY: Final = os.environ.get("DESK_SIGNING_KEY", "whsec_b25seSBmb3IgdHJ5aW5nIHRoaW5ncyBvdXQ=")


class Bookings:
    """The booking system, which knows an idempotency key again."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._numbers: dict[str, int] = {}

    async def book(self, guests: int, idempotency_key: str) -> int:
        """The number of the booking; the same key gives the same booking."""
        self.requests.append(f"table for {guests}")
        return self._numbers.setdefault(idempotency_key, len(self._numbers) + 1)


bookings = Bookings()


async def desk(turn: Turn) -> None:
    """Books tables; remembers how often it was asked."""
    asked = _TABLE.search(turn.event.text)
    if asked is None:
        before = sum(exchange.role == "user" for exchange in turn.history)
        await turn.reply(f"I book tables: say `table for 4`. You wrote {before} times before.")
        return

    async def book(guests: int) -> int:
        return await bookings.book(guests, turn.effect_id)

    number = await turn.step("book", book, int(asked[1]), returns=int)
    await turn.reply(f"Booked a table for {asked[1]}, number {number}.")


async def guests_own_their_chat(access: Access) -> Allow:
    """The browser chat proves whose chat it is; nobody else can name it."""
    return Allow()


app = App(
    "Front desk",
    agents=[Agent("desk", runs=desk, conversation=True, subscriptions=[Subscription("web")])],
    channels=[WebChannel(secret=_SECRET, keys=StaticKeys((SigningKey.parse("desk", _KEY),)))],
    conversations=Conversations(authorize=guests_own_their_chat),
)
