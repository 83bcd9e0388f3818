"""`python -m benchmarks`: the worker, then the bare loop, on the same services; one JSON line a run."""

import argparse
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

from benchmarks.control import Arrival
from benchmarks.parley_side import kafka_settings
from benchmarks.processes import Child, child
from benchmarks.profiling import Profile, profiler
from benchmarks.publishing import Publisher, backlog_of
from benchmarks.report import faults, latency_ms, speed
from benchmarks.services import BARE_TOPIC, Services, services

GOAL: Final = 0.6
PACED_PER_S: Final = 50
PACED_EVENTS: Final = 500
STALL_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 1.5


def run(chosen: argparse.Namespace, conversations: int) -> dict[str, Any]:
    """One line of results, on fresh services."""
    load_before = round(os.getloadavg()[0], 1)
    with services() as shared:
        publisher = Publisher(shared.bootstrap, conversations)
        events_topic = kafka_settings(shared.bootstrap).events_topic
        publisher.backlog(chosen.events, events_topic, BARE_TOPIC)
        worker = {} if chosen.only == "bare" else _run_parley(shared, publisher, events_topic, chosen)
        bare = {} if chosen.only == "parley" else _run_bare(shared, chosen.events, conversations)
    return {
        "goal": "main",
        "conversations": conversations,
        "events": chosen.events,
        **(_verdict(worker, bare) if worker and bare else {}),
        **worker,
        **bare,
        "load_before": load_before,
    }


def _verdict(worker: dict[str, Any], bare: dict[str, Any]) -> dict[str, Any]:
    ratio = worker["turns_per_s"] / bare["bare_turns_per_s"] if bare["bare_turns_per_s"] else 0.0
    kept = not (worker["duplicates"] or worker["lost"] or worker["order_violations"] or bare["bare_lost"])
    return {"met": kept and ratio >= GOAL, "ratio_to_bare": round(ratio, 3)}


def _run_parley(
    shared: Services, publisher: Publisher, topic: str, chosen: argparse.Namespace
) -> dict[str, Any]:
    commits, wal = shared.written()
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                child(
                    "benchmarks.parley_side",
                    shared.database,
                    shared.bootstrap,
                    shared.receiver.url,
                    folder=shared.folder,
                )
            )
            for _ in range(chosen.workers)
        ]
        _profiled(shared, workers, chosen)
        shared.receiver.wait_for(chosen.events, STALL_SECONDS, *workers)
        time.sleep(SETTLE_SECONDS)
        commits_after, wal_after = shared.written()
        cpu = sum(worker.cpu_seconds() for worker in workers)
        publisher.paced(chosen.paced, PACED_PER_S, topic)
        shared.receiver.wait_for(publisher.published.total(), STALL_SECONDS, *workers)
        time.sleep(SETTLE_SECONDS)
        started = min(worker.said["started"] for worker in workers)
    arrivals = shared.receiver.take()
    return {
        **_speed_facts(arrivals, started, ""),
        **dict(zip(("p50_ms", "p95_ms", "p99_ms"), latency_ms(arrivals, 50, 95, 99), strict=True)),
        **_fault_facts(arrivals, publisher),
        "commits_per_turn": round((commits_after - commits) / chosen.events, 3),
        "cpu_ms_per_turn": round(cpu * 1000 / chosen.events, 2),
        "wal_bytes_per_turn": round((wal_after - wal) / chosen.events),
    }


def _run_bare(shared: Services, events: int, conversations: int) -> dict[str, Any]:
    commits, wal = shared.written()
    with child(
        "benchmarks.bare_side",
        shared.database,
        shared.bootstrap,
        shared.receiver.url,
        BARE_TOPIC,
        folder=shared.folder,
    ) as bare:
        shared.receiver.wait_for(events, STALL_SECONDS, bare)
        time.sleep(SETTLE_SECONDS)
        commits_after, wal_after = shared.written()
        cpu = bare.cpu_seconds()
    arrivals = shared.receiver.take()
    return {
        **_speed_facts(arrivals, bare.said["started"], "bare_"),
        "bare_lost": faults(arrivals, backlog_of(events, conversations)).lost,
        "bare_commits_per_turn": round((commits_after - commits) / events, 3),
        "bare_cpu_ms_per_turn": round(cpu * 1000 / events, 2),
        "bare_wal_bytes_per_turn": round((wal_after - wal) / events),
    }


def _profiled(shared: Services, workers: list[Child], chosen: argparse.Namespace) -> None:
    if chosen.profile is None:
        return
    shared.receiver.wait_for(chosen.events // 20, STALL_SECONDS, *workers)
    profile = Profile(workers[0].process.pid, chosen.profile)
    shared.receiver.wait_for(chosen.events, STALL_SECONDS, *workers)
    print(profile.finish(), file=sys.stderr)


def _speed_facts(arrivals: list[Arrival], started: int, prefix: str) -> dict[str, float]:
    found = speed(arrivals, started)
    return {
        f"{prefix}turns_per_s": round(found.turns_per_s, 1),
        f"{prefix}turns_per_s_from_start": round(found.turns_per_s_from_start, 1),
    }


def _fault_facts(arrivals: list[Arrival], publisher: Publisher) -> dict[str, int]:
    found = faults(arrivals, publisher.published)
    return {
        "duplicates": found.duplicates,
        "lost": found.lost,
        "order_violations": found.order_violations,
    }


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--events", type=int, default=20_000, help="published before the worker starts")
    options.add_argument("--conversations", type=int, default=2_000)
    options.add_argument("--workers", type=int, default=1, help="worker processes")
    options.add_argument("--paced", type=int, default=PACED_EVENTS, help="events of the latency phase")
    options.add_argument(
        "--profile", type=Path, help="sample the worker with py-spy; collapsed stacks go here"
    )
    options.add_argument("--only", choices=("parley", "bare"))
    options.add_argument("--all", action="store_true", help="a second line, over 200 conversations")
    chosen = options.parse_args()
    if chosen.profile is not None:
        profiler()
    signal.signal(signal.SIGTERM, _leave)
    for conversations in (chosen.conversations, 200) if chosen.all else (chosen.conversations,):
        print(json.dumps(run(chosen, conversations)), flush=True)


if __name__ == "__main__":
    main()
