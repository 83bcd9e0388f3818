"""A broker in the foreground, until interrupted: `python -m tests.support.kafka [--brokers 3] [--sasl]`."""

import argparse
import signal
import threading
from types import FrameType

from tests.support.kafka.cluster import ADAPTER, ADMIN, WORKER, KafkaCluster
from tests.support.kafka.topics import STANDARD, create_topics_of, grant


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.support.kafka", description=__doc__)
    options.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    options.add_argument("--sasl", action="store_true", help="SCRAM log-ins and permissions")
    chosen = options.parse_args()

    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    with KafkaCluster(chosen.brokers, passwords=chosen.sasl) as cluster:
        create_topics_of(cluster, STANDARD)
        if chosen.sasl:
            grant(cluster, STANDARD)
            for account in (ADMIN, ADAPTER, WORKER):
                print(f"user {account.name}, password {account.password} (SCRAM-SHA-512)")
        print(f"topics {', '.join(STANDARD.names())}")
        print(f"bootstrap {cluster.bootstrap}", flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
