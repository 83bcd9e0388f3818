"""librdkafka's mock cluster: one broker in this process's memory, gone with it.

It serves produce (idempotent too), fetch and one member in each group; no admin calls. Topics appear
with four partitions when a client asks about them.
"""

from confluent_kafka import Producer

_READY_SECONDS = 10.0


class MockKafka:
    """Runs from construction to `close()`."""

    def __init__(self) -> None:
        self._owner: Producer | None = Producer(
            {"bootstrap.servers": "unused:1", "test.mock.num.brokers": 1, "log_level": 3}
        )
        brokers = self._owner.list_topics(timeout=_READY_SECONDS).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def close(self) -> None:
        """Every record is lost with it."""
        self._owner = None
