"""The demo's channel: signed webhooks both ways."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from schemas.event import Event
from workers.channels.keys import StaticKeys
from workers.channels.webhook import WebhookChannel, read_request
from workers.embedded.demo.plan import CHANNEL, Plan


def accepted(event: Event) -> Event:
    """The event as it is published."""
    return event


class ParcelChannel(WebhookChannel):
    """Takes what the demo's platform posts, and posts replies to it."""

    def __init__(self, plan: Plan) -> None:
        keys = StaticKeys((plan.key,))
        super().__init__(CHANNEL, plan.replies_to, keys)
        self._proofs = keys

    def accept(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Event:
        """The event in a request. Raises RefusedRecord."""
        return accepted(read_request(self.name, self._proofs, headers, body, now))
