"""Builders of events, of the signed records that carry them, and of the candidates they become."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from schemas.envelope import SealedEvent, seal
from schemas.event import Event, decode_event
from schemas.identity import Principal
from schemas.run import new_uuid7
from schemas.signing import SigningKey
from workers.admission.policy import Candidate
from workers.agents.agent import Agent, Subscription
from workers.channels.keys import StaticKeys
from workers.intake.policy import candidate
from workers.kafka.record import Headers, Record

_NUMBERS = itertools.count(1)


def a_key(seed: str = "one") -> SigningKey:
    """A symmetric signing key; the same seed gives the same key."""
    return SigningKey.parse(seed, secret_of(seed))


def secret_of(seed: str) -> str:
    """The key of `a_key(seed)` as a key file writes it."""
    return "whsec_" + base64.b64encode(seed.encode().ljust(32, b".")[:32]).decode()


KEYS = StaticKeys((a_key(),))
"""The keys that `sealed` signs with, for a channel under test."""


def an_event(**changes: Any) -> Event:
    """A direct message to the `lab` channel, under an id and in a chat of its own; decoded, so that it has bytes."""
    number = next(_NUMBERS)
    fields: dict[str, Any] = {
        "event_id": f"event-{number}",
        "channel": "lab",
        "account": "a",
        "chat": f"chat-{number}",
        "audience": "direct",
        "kind": "message",
        "principal": Principal("user-1"),
        "text": "hello",
        "occurred_at": datetime.now(UTC),
    }
    return decode_event(Event(**{**fields, **changes}).encode())


def sealed(event: Event, *keys: SigningKey, now: datetime | None = None) -> SealedEvent:
    """The signed record of `event`, ready to publish."""
    return seal(event, keys or KEYS.signing, now or datetime.now(UTC))


def a_record(
    event: Event | SealedEvent,
    *,
    offset: int | None = None,
    value: bytes | None = None,
    headers: Headers | None = None,
    key: bytes | None = None,
) -> Record:
    """The record of `event` as a consumer hands it out; what is given replaces what was signed."""
    signed = sealed(event) if isinstance(event, Event) else event
    return Record(
        topic="channel.events",
        partition=0,
        offset=next(_NUMBERS) if offset is None else offset,
        key=signed.key if key is None else key,
        value=signed.value if value is None else value,
        headers=list(signed.headers) if headers is None else headers,
        timestamp=datetime.now(UTC).timestamp(),
    )


async def idle(turn: object) -> None:
    """An agent's function that does nothing."""


def an_agent(name: str = "echo", **changes: Any) -> Agent:
    """An agent that listens to messages of the `lab` channel; unbound unless told otherwise."""
    return Agent(name, **{"runs": idle, "subscriptions": [Subscription("lab")], **changes})


def candidates_of(agent: Agent, events: Sequence[Event]) -> list[Candidate]:
    """What intake asks of admission for these events."""
    return [candidate(agent, event, new_uuid7(), None) for event in events]
