"""What all scenarios stand on: three brokers, one Postgres with durable commits; and how to break each of them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from migrations import runner
from tests.support.kafka.broker import Broker
from tests.support.kafka.cluster import KafkaCluster
from tests.support.postgres_fixture import TEMPLATE, PostgresForTests
from tests.support.waiting import wait_until

ELECTED_WITHIN = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Services:
    """`folder` is there until the end; databases are copies of a migrated template."""

    kafka: KafkaCluster
    postgres: PostgresForTests
    folder: Path

    def crash_postgres(self) -> None:
        """An immediate shutdown: no session is told, and the next start recovers from the log."""
        self.postgres.kill_at_once()

    def start_postgres(self) -> None:
        self.postgres.start_again()

    def controller(self) -> Broker:
        """The broker whose controller leads, once those that run know of one."""
        found = wait_until("a controller leads", self._leader, ELECTED_WITHIN)
        assert found is not None
        return found

    def another_controller(self, than: Broker) -> Broker:
        """The one that leads in the place of `than`, once it does."""
        found = wait_until("another controller leads", lambda: self._leader(than), ELECTED_WITHIN)
        assert found is not None
        return found

    def _leader(self, beside: Broker | None = None) -> Broker | None:
        running = [broker for broker in self.kafka.brokers if broker.is_running()]
        states = [json.loads(_quorum_state(broker).read_text("utf-8")) for broker in running]
        newest = max(states, key=lambda state: (state["leaderEpoch"], state["leaderId"]))
        led_by = (broker for broker in running if broker.node_id == newest["leaderId"])
        return next((broker for broker in led_by if broker is not beside), None)


def _quorum_state(broker: Broker) -> Path:
    return broker.folder / "data" / "__cluster_metadata-0" / "quorum-state"


@contextmanager
def services() -> Iterator[Services]:
    """Started, and gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="parley-replicas-"))
    folder.chmod(0o755)
    try:
        with KafkaCluster(brokers=3, heap_mb=400) as kafka:
            postgres = PostgresForTests(folder / "data")
            try:
                runner.upgrade(postgres.create(TEMPLATE))
                yield Services(kafka, postgres, folder)
            finally:
                postgres.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
