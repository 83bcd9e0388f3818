"""One measured run: the worker, then the bare loop beside it, or the worker alone at a pace; on fresh services."""

import argparse
import os
import sys
import time
from contextlib import ExitStack
from typing import Any, Final

from benchmarks.control import Arrival
from benchmarks.counting import Count
from benchmarks.parley_side import Orders, kafka_settings
from benchmarks.processes import Child, child
from benchmarks.profiling import Profile
from benchmarks.publishing import Publisher, backlog_of
from benchmarks.report import faults, latency_ms, speed
from benchmarks.services import BARE_TOPIC, Services, services

ALL_ROLES: Final = ("intake,turns,delivery",)
SPLIT_ROLES: Final = ("intake", "turns", "delivery")
PACED_PER_S: Final = 50
STALL_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 1.5
WARMING: Final = 2_000
"""Events before a paced run, so that plans are made and pages are read."""


def beside_bare(chosen: argparse.Namespace, conversations: int) -> dict[str, Any]:
    """A backlog worked off by the worker, then the same by the bare loop: speeds, latency, faults, costs."""
    load_before = round(os.getloadavg()[0], 1)
    with services() as shared:
        publisher = Publisher(shared.bootstrap, conversations)
        events_topic = kafka_settings(shared.bootstrap).events_topic
        publisher.backlog(chosen.events, events_topic, BARE_TOPIC)
        worker = {} if chosen.only == "bare" else _run_parley(shared, publisher, events_topic, chosen)
        bare = {} if chosen.only == "parley" else _run_bare(shared, chosen.events, conversations)
    return {
        "conversations": conversations,
        "events": chosen.events,
        **({"ratio_to_bare": _ratio(worker, bare)} if worker and bare else {}),
        **worker,
        **bare,
        "load_before": load_before,
    }


def at_a_pace(
    events: int, conversations: int, processes: tuple[str, ...], orders: Orders, per_second: int = PACED_PER_S
) -> dict[str, Any]:
    """`events` evenly at `per_second` to idle workers, one process for each of `processes` (its roles)."""
    load_before = round(os.getloadavg()[0], 1)
    with services() as shared, ExitStack() as stack:
        publisher = Publisher(shared.bootstrap, conversations)
        workers = [_worker(stack, shared, roles, orders) for roles in processes]
        topic = kafka_settings(shared.bootstrap).events_topic
        publisher.backlog(WARMING, topic)
        shared.receiver.wait_for(WARMING, STALL_SECONDS, *workers)
        publisher.paced(events, per_second, topic)
        shared.receiver.wait_for(publisher.published.total(), STALL_SECONDS, *workers)
        peak_mb = max(worker.peak_mb() for worker in workers)
        arrivals = shared.receiver.take()
    return {
        "events": events,
        "per_second": per_second,
        **dict(zip(("p50_ms", "p95_ms", "p99_ms"), latency_ms(arrivals, 50, 95, 99), strict=True)),
        **_fault_facts(arrivals, publisher),
        "peak_mb": peak_mb,
        "load_before": load_before,
    }


def kept(line: dict[str, Any]) -> bool:
    """Whether nothing was lost, doubled or out of order in a run."""
    return not any(line.get(name) for name in ("duplicates", "lost", "order_violations", "bare_lost"))


def _ratio(worker: dict[str, Any], bare: dict[str, Any]) -> float:
    bare_speed = bare["bare_turns_per_s"]
    return round(worker["turns_per_s"] / bare_speed, 3) if bare_speed else 0.0


def _worker(stack: ExitStack, shared: Services, roles: str, orders: Orders, *count: str) -> Child:
    return stack.enter_context(
        child(
            "benchmarks.parley_side",
            shared.database,
            shared.bootstrap,
            shared.receiver.url,
            roles,
            orders.written,
            *count,
            folder=shared.folder,
        )
    )


def _run_parley(
    shared: Services, publisher: Publisher, topic: str, chosen: argparse.Namespace
) -> dict[str, Any]:
    commits, wal = shared.written()
    counts = [shared.folder / f"statements.{number}" for number in range(chosen.workers)]
    statements = [Count.new(path) for path in counts]
    with ExitStack() as stack:
        workers = [_worker(stack, shared, ALL_ROLES[0], Orders(), str(path)) for path in counts]
        _profiled(shared, workers, chosen)
        shared.receiver.wait_for(chosen.events, STALL_SECONDS, *workers)
        time.sleep(SETTLE_SECONDS)
        commits_after, wal_after = shared.written()
        cpu = sum(worker.cpu_seconds() for worker in workers)
        sent = sum(count.value for count in statements)
        publisher.paced(chosen.paced, PACED_PER_S, topic)
        shared.receiver.wait_for(publisher.published.total(), STALL_SECONDS, *workers)
        time.sleep(SETTLE_SECONDS)
        started = min(worker.said["started"] for worker in workers)
    arrivals = shared.receiver.take()
    return {
        **_speed_facts(arrivals, started, ""),
        **dict(zip(("p50_ms", "p95_ms", "p99_ms"), latency_ms(arrivals, 50, 95, 99), strict=True)),
        **_fault_facts(arrivals, publisher),
        "statements_per_turn": round(sent / chosen.events, 2),
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
