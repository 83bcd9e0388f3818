"""Values that the tests of the contracts share."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas.event import Event
from schemas.identity import Principal
from schemas.signing import SigningKey, VerifyKey

GOLDEN = Path(__file__).parent / "golden"
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def golden(name: str) -> Any:
    """The parsed golden file `name`."""
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def a_secret(seed: str, prefix: str = "whsec_") -> str:
    """A 32-byte key text; the same seed gives the same key."""
    return prefix + base64.b64encode(seed.encode().ljust(32, b".")[:32]).decode()


def a_key(seed: str = "one", prefix: str = "whsec_") -> SigningKey:
    """A signing key."""
    return SigningKey.parse(seed, a_secret(seed, prefix))


def an_event(**changes: Any) -> Event:
    """A valid group message on `slack`."""
    fields: dict[str, Any] = {
        "event_id": "Ev.1",
        "message_id": "T1:C1:17.5",
        "channel": "slack",
        "account": "T1",
        "chat": "C1",
        "thread": "17.5",
        "audience": "channel",
        "kind": "message",
        "principal": Principal("U1", "T1"),
        "text": "hello",
        "occurred_at": NOW,
    }
    return Event(**{**fields, **changes})


class Registry:
    """The keys of registered channels."""

    def __init__(self, **keys: Sequence[VerifyKey]) -> None:
        self.keys = keys

    def __call__(self, channel: str) -> Sequence[VerifyKey] | None:
        return self.keys.get(channel)
