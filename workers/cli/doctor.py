"""`parley doctor`: what this installation is made of and how it does, for a person who looks for a fault."""

import platform
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import typer

from workers.cli.edge import AWAY, exit_code, lines_of, run
from workers.cli.output import plain, print_fields, print_json, print_line
from workers.cli.usage import Json

if TYPE_CHECKING:
    from workers.kafka.broker import TopicState
    from workers.kafka.settings import KafkaSettings

PACKAGES = (
    "parley",
    "faust-streaming",
    "aiokafka",
    "asyncpg",
    "pydantic",
    "pydantic-ai-slim",
    "fastapi",
    "uvloop",
)


def doctor(as_json: Json = False) -> None:
    """Versions, connections with timings, clocks, partitions, worker sessions and what waits; changes nothing."""
    report = run(_report())
    if as_json:
        print_json(report)
    else:
        for part, found in report.items():
            print_line(f"[{part}]")
            print_fields(found)
    if any("error" in found for found in report.values()):
        raise typer.Exit(AWAY)


async def _report() -> dict[str, dict[str, object]]:
    from workers.cli.connect import all_settings

    settings = all_settings()
    return {
        "versions": _versions(),
        "database": await _database(settings.database_url),
        "kafka": await _kafka(),
    }


def _versions() -> dict[str, object]:
    found: dict[str, object] = {"python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


async def _database(url: str) -> dict[str, object]:
    import asyncio

    from migrations import runner
    from workers.cli.connect import open_database
    from workers.operations import facts

    found: dict[str, object] = {}
    started = time.monotonic()
    try:
        async with open_database(url) as database:
            found["connect_seconds"] = time.monotonic() - started
            async with facts.looking(database) as tx:
                asked, before = time.monotonic(), datetime.now(UTC)
                server = await facts.read_server(tx)
                round_trip = time.monotonic() - asked
                found |= {
                    "round_trip_seconds": round_trip,
                    "clock_ahead_seconds": (server.clock - before).total_seconds() - round_trip / 2,
                    "postgres": server.version,
                    "pgvector": server.has_vector,
                    "standby": server.in_recovery,
                }
            found["schema"] = await asyncio.to_thread(runner.current, url)
            found["schema_of_this_version"] = runner.head()
            async with facts.looking(database) as tx:
                sessions, work = await facts.read_sessions(tx), await facts.read_work(tx)
            found |= {
                f"sessions_{state}": sessions.get(state, 0) for state in ("alive", "lapsed", "dead", "ended")
            }
            found |= plain(work)
    except Exception as error:
        if exit_code(error) is None:
            raise
        found["error"] = "; ".join(lines_of(error))
    return found


async def _kafka() -> dict[str, object]:
    from workers.cli.connect import kafka_settings
    from workers.kafka.broker import describe

    settings = kafka_settings()
    found: dict[str, object] = {"bootstrap": settings.bootstrap}
    started = time.monotonic()
    try:
        states = await describe(settings, settings.topics)
    except Exception as error:
        if exit_code(error) is None:
            raise
        found["error"] = "; ".join(lines_of(error))
        return found
    found["answer_seconds"] = time.monotonic() - started
    for topic in settings.topics:
        state = states.get(topic)
        there = state is not None and state.partitions > 0
        found[topic] = await _said_of(settings, topic, state) if state and there else "missing"
    return found


async def _said_of(settings: "KafkaSettings", topic: str, state: "TopicState") -> str:
    from schemas.errors import ParleyError
    from workers.kafka.topics import promises

    said = f"{state.partitions} partitions, replication {state.replication}"
    try:
        promised = await promises(settings, topic)
    except ParleyError:
        return f"{said}, settings not told"
    kept = "for ever" if promised.retention is None else f"for {promised.retention}"
    election = "on" if promised.unclean_election else "off"
    return f"{said}, min.insync.replicas {promised.min_insync_replicas}, kept {kept}, unclean election {election}"
