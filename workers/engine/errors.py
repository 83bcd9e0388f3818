"""Why a dispatch is refused, each for good, or not done now."""

from schemas.errors import Rejected, Transient
from schemas.reason import Reason


class NotTheRegisteredChannel(Rejected):
    """Something that is not the channel object which the app was built with; `kind` is its type."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"a {kind} opens no channel: give the very object that the app was built with; its name, an equal object "
            "or a copy proves nothing"
        )
        self.kind = kind


class ForeignEvent(Rejected):
    """A channel brought an event that names another one."""

    def __init__(self, channel: str, named: str) -> None:
        super().__init__(f"channel {channel!r} cannot bring an event of channel {named!r}")
        self.channel, self.named = channel, named


class NotSubscribed(Rejected):
    """An agent does not listen to this kind of event on this channel."""

    def __init__(self, agent: str, channel: str, kind: str) -> None:
        super().__init__(f"agent {agent!r} has no subscription to {kind!r} events of channel {channel!r}")
        self.agent, self.channel, self.kind = agent, channel, kind


class NoMemory(Rejected):
    """A conversation was asked for with an agent that keeps none."""

    def __init__(self, agent: str) -> None:
        super().__init__(
            f"agent {agent!r} keeps no conversations: give it conversation=..., or use dispatch()"
        )
        self.agent = agent


class ConcurrencyKeyDiffers(Rejected):
    """A caller's concurrency key is not the one that follows from the event."""

    def __init__(self, derived: str) -> None:
        super().__init__(
            f"the concurrency key of this event is {derived!r}: leave it out, or give exactly that"
        )
        self.derived = derived


class EventRefused(Rejected):
    """Admission refused the event; `reason` is what a dead letter of it would say."""

    def __init__(self, reason: Reason, event_id: str) -> None:
        super().__init__(reason.value, event_id)
        self.reason, self.event_id = reason, event_id


class StoreAway(Transient):
    """The database did not answer in time; the event may have been admitted: dispatch it again, under the same id."""


class EngineStopped(Transient):
    """The worker under this engine drains or has ended: give the work to the one that comes after it."""
