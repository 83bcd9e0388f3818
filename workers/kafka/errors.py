"""What can go wrong with the broker, cut by what the caller must do next."""

from schemas.errors import Misconfigured, Rejected, Transient


class BrokerAway(Transient):
    """No broker of `bootstrap` answers; `detail` is the client's own reason."""

    def __init__(self, bootstrap: str, detail: str) -> None:
        super().__init__(f"no Kafka broker answers at {bootstrap}: {detail}")
        self.bootstrap, self.detail = bootstrap, detail


class BrokerLoginFailed(Misconfigured):
    """The broker refuses `user` over `mechanism`, or cannot speak the security protocol that is set."""

    def __init__(self, bootstrap: str, mechanism: str, user: str, detail: str) -> None:
        super().__init__(f"Kafka at {bootstrap} refuses user {user!r} ({mechanism}): {detail}")
        self.bootstrap, self.mechanism, self.user, self.detail = bootstrap, mechanism, user, detail


class TopicMissing(Misconfigured):
    """The broker does not know `topic`, and nobody but an operator creates topics."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        super().__init__(
            f"Kafka topics missing: {', '.join(topics)}; create them with `parley topics create`"
        )
        self.topics = topics


class TopicForbidden(Misconfigured):
    """The broker's access rules refuse this user the topic (or the group that reads it)."""

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(f"Kafka refuses access to {topic}: {detail}")
        self.topic, self.detail = topic, detail


class RecordsUnreadable(Misconfigured):
    """A partition cannot be read on from `offset`: Kafka damaged its records, or this process cannot unpack them."""

    def __init__(self, topic: str, partition: int, offset: int, problem: str) -> None:
        super().__init__(
            f"partition {partition} of {topic} cannot be read from offset {offset} on: {problem}. Repair it (for a "
            "codec install cramjam, for a checksum restore the replica), or set the group's offset behind it"
        )
        self.topic, self.partition, self.offset, self.problem = topic, partition, offset, problem


class RecordTooLarge(Rejected):
    """A record of `record_bytes` bytes is above the limit of the producer or the broker."""

    def __init__(self, topic: str, record_bytes: int) -> None:
        super().__init__(f"a record of {record_bytes} bytes is too large for {topic}")
        self.topic, self.record_bytes = topic, record_bytes


class ConsumerDied(Transient):
    """The consumer of `topic` stopped by itself; nothing un-acknowledged was committed."""

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(f"the consumer of {topic} stopped: {detail}")
        self.topic, self.detail = topic, detail
