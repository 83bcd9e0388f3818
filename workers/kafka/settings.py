"""How to reach Kafka, what the topics are called and how much of them may sit in memory."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from schemas.errors import Misconfigured

MIB = 1024 * 1024
Security = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Immutable; the password is read from its file when a client is built and kept nowhere else."""

    bootstrap: str
    """`host:port`, several separated by commas."""
    security: Security = "PLAINTEXT"
    mechanism: Mechanism = "SCRAM-SHA-512"
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None

    events_topic: str = "channel.events"
    deliveries_topic: str = "channel.deliveries"
    dead_topic: str = "channel.events.dead"
    partitions: int = 12
    replication: int = 3
    retention: timedelta = timedelta(days=3)
    group_prefix: str = "parley"

    session_timeout: timedelta = timedelta(seconds=10)
    heartbeat_every: timedelta = timedelta(seconds=3)
    request_timeout: timedelta = timedelta(seconds=40)
    commit_every: timedelta = timedelta(seconds=1)

    batch_records: int = 500
    batch_bytes: int = 8 * MIB
    buffer_records: int = 2000
    """Records waiting between faust and the reader."""
    buffer_bytes: int = 8 * MIB
    fetch_wait: timedelta = timedelta(milliseconds=500)
    """How long a broker may keep a fetch open when there is nothing to fetch."""
    fetch_partition_bytes: int = MIB
    """One fetch of one partition; the client holds up to two for each partition of its own."""
    outstanding_records: int = 20_000
    """Un-acknowledged records (and acknowledged ones behind a gap) after which reading pauses."""
    outstanding_bytes: int = 64 * MIB

    linger: timedelta = timedelta(0)
    """The client batches what gathers during a request; waiting longer measured slower throughout."""
    pending_bytes: int = 16 * MIB
    record_bytes: int = 2 * MIB
    """The largest record a producer sends."""

    def __post_init__(self) -> None:
        if not self.servers:
            raise Misconfigured("kafka.bootstrap names no broker")
        if self.security.startswith("SASL") and not (self.user and self.password_file):
            raise Misconfigured(f"kafka.security {self.security} needs kafka.user and kafka.password_file")
        if self.heartbeat_every * 2 >= self.session_timeout:
            raise Misconfigured("kafka.heartbeat_every must be below half of kafka.session_timeout")
        if self.session_timeout > self.request_timeout:
            raise Misconfigured("kafka.session_timeout must not be above kafka.request_timeout")

    @classmethod
    def embedded(cls, bootstrap: str) -> "KafkaSettings":
        """For the mock cluster of `workers.embedded`: one broker, four partitions, quick group time-outs.

        The mock answers a fetch only when its wait is over, so the wait is short.
        """
        return cls(
            bootstrap=bootstrap,
            partitions=4,
            replication=1,
            session_timeout=timedelta(seconds=6),
            heartbeat_every=timedelta(seconds=1),
            fetch_wait=timedelta(milliseconds=25),
        )

    def with_topics(self, *, events: str, deliveries: str, dead: str) -> "KafkaSettings":
        """The same cluster under other topic names."""
        return replace(self, events_topic=events, deliveries_topic=deliveries, dead_topic=dead)

    @property
    def servers(self) -> list[str]:
        """The addresses of `bootstrap`, one each."""
        return [server.strip() for server in self.bootstrap.split(",") if server.strip()]

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic this project owns."""
        return (self.events_topic, self.deliveries_topic, self.dead_topic)

    def group(self, role: str) -> str:
        """The consumer group of a role: `parley.intake`."""
        return f"{self.group_prefix}.{role}"

    def password(self) -> str:
        """Read now, so that a rotated file counts at the next connection; raises Misconfigured."""
        if self.password_file is None:
            raise Misconfigured("kafka.password_file is not set")
        try:
            return self.password_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Misconfigured(f"kafka.password_file cannot be read: {error.strerror}") from None

    def tls(self) -> ssl.SSLContext | None:
        """The context for SSL and SASL_SSL, None where the connection is plain."""
        if not self.security.endswith("SSL"):
            return None
        return ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)

    def client_options(self) -> Mapping[str, Any]:
        """What every aiokafka client takes to reach this cluster."""
        options: dict[str, Any] = {"security_protocol": self.security, "ssl_context": self.tls()}
        if self.security.startswith("SASL"):
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password(),
            }
        return options
