"""An event leaves its adapter signed by its channel's own keys, ready for `channel.events`."""

from datetime import datetime

from schemas.envelope import SealedEvent
from schemas.envelope import seal as seal_with
from schemas.errors import Misconfigured
from schemas.event import Event
from schemas.signing import MAX_SIGNATURES
from workers.channels.port import KeySource


class NoSigningKey(Misconfigured):
    """The channel has no key to sign its events with."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"channel {channel!r} has no signing key")
        self.channel = channel


def seal(event: Event, keys: KeySource | None, now: datetime, traceparent: str | None = None) -> SealedEvent:
    """`event` signed by the signing keys that its channel has now. Raises NoSigningKey, TooLarge."""
    signing = keys.signing_keys(event.channel) if keys is not None else ()
    if not signing:
        raise NoSigningKey(event.channel)
    return seal_with(event, signing[:MAX_SIGNATURES], now, traceparent)
