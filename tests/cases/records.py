"""Records that no encoder of ours would make, signed as an adapter would sign them."""

import time
from typing import Any

import orjson

from schemas.envelope import SealedEvent, to_headers, webhook_id
from schemas.event import Event
from schemas.signing import sign
from tests.support.events import KEYS


def signed_as(event: Event, value: bytes) -> SealedEvent:
    """`value` under the envelope and a true signature of `event`."""
    now = int(time.time())
    signature = sign(KEYS.signing, webhook_id(event.event_id), now, value)
    return SealedEvent(event.record_key, value, to_headers(event, now, signature))


def with_more_fields(event: Event, **fields: Any) -> SealedEvent:
    """The event with further fields in its value."""
    return signed_as(event, orjson.dumps({**orjson.loads(event.encode()), **fields}))
