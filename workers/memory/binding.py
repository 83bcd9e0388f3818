"""Which conversation an event belongs to, and under which key its lane is found.

Both are derived from the verified event alone, never from what a payload says.
"""

from hashlib import sha256

from schemas.event import Event
from schemas.identity import Identity


def identity_of(memory_key: str, event: Event) -> Identity:
    """The identity of `event` under `memory_key`. The thread is part of the chat.

    A channel whose threads share the chat's memory leaves `thread` out of its events and says where a reply goes in
    `reply_address`, which is no part of the identity.
    """
    return Identity(memory_key, event.channel, event.account, chat_of(event), event.audience)


def concurrency_key_of(identity: Identity) -> str:
    """What turns of the conversation are serialized by, in its readable form: the identity's canonical key."""
    return identity.key().decode("ascii")


def conversation_lane_key(identity: Identity) -> bytes:
    """The 32-byte key of the lane that the conversation `identity` is serialized by."""
    return sha256(b"conversation|" + identity.key()).digest()


def chat_of(event: Event) -> str:
    """`chat`, or `chat/thread`; `%` and `/` inside either are escaped, so that two places never share a name."""
    chat = _escape(event.chat)
    return chat if event.thread is None else f"{chat}/{_escape(event.thread)}"


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")
