"""Postgres and a broker for all tests of a process: started with the first TestApp, gone with the process.

Each TestApp gets a database of its own, copied from a template that was migrated once, and topics and consumer
groups of its own names.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, LiteralString

import psycopg
import structlog
from psycopg import sql

from migrations import runner
from workers.embedded.installed import require_embedded
from workers.embedded.services import Running
from workers.kafka.settings import KafkaSettings
from workers.kafka.topics import touch_topics
from workers.postgres.sql import load

CREATE_CLOCK = load(__package__, "create_clock")
INSERT_CLOCK = load(__package__, "insert_clock")
REPLACE_PARLEY_NOW = load(__package__, "replace_parley_now")
READ_DEFAULTS = load(__package__, "read_defaults")

_TEMPLATE: Final = "parley_test_template"
_STOP_SECONDS: Final = 10

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one TestApp lives."""

    database_url: str
    kafka: KafkaSettings


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    """A fresh database, fresh topics and a group prefix; the database is dropped at the end.

    Raises EmbeddedNotInstalled.
    """
    require_embedded()
    services = _services()
    await asyncio.to_thread(_template, services)
    name = f"t{uuid.uuid4().hex[:12]}"
    await asyncio.to_thread(_administer, services, "create database {} template {}", name, _TEMPLATE)
    kafka = KafkaSettings.embedded(services.bootstrap).with_topics(
        events=f"{name}.events", deliveries=f"{name}.deliveries", dead=f"{name}.dead"
    )
    kafka = replace(kafka, group_prefix=name)
    try:
        await touch_topics(kafka)
        yield Place(_url(services, name), kafka)
    finally:
        await asyncio.to_thread(_administer, services, "drop database if exists {} with (force)", name)


@cache
def _services() -> Running:
    """Start both in a process of their own, which ends with this one."""
    log.warning(
        "testing.database_is_embedded",
        advice="it is thrown away: history and notes are lost at the end, and replicas do not share them",
    )
    data = Path(tempfile.mkdtemp(prefix="parley-test-"))
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.embedded", "--data", str(data), "--die-with-parent"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(_end, process, data)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the embedded services ended at start with code {process.wait()}")
    return Running.read(line.decode())


def _end(process: subprocess.Popen[bytes], data: Path) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    shutil.rmtree(data, ignore_errors=True)


@cache
def _template(services: Running) -> None:
    """Migrate once; from then on the schema reads the test clock wherever it read the server's."""
    _administer(services, "create database {}", _TEMPLATE)
    url = _url(services, _TEMPLATE)
    runner.upgrade(url)
    with psycopg.connect(url) as connection:
        for statement in (CREATE_CLOCK, INSERT_CLOCK, REPLACE_PARLEY_NOW):
            connection.execute(statement.encode())
        for table, column in connection.execute(READ_DEFAULTS.encode()).fetchall():
            connection.execute(
                sql.SQL("alter table {} alter column {} set default parley_now()").format(
                    sql.Identifier(table), sql.Identifier(column)
                )
            )


def _administer(services: Running, statement: LiteralString, *names: str) -> None:
    with psycopg.connect(services.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _url(services: Running, database: str) -> str:
    return f"{services.database_url.rpartition('/')[0]}/{database}"
