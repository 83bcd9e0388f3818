"""`parley serve` in a process of its own: ready, drained by the first signal, gone at the second."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.desk import Terminal
from tests.support.events import an_agent, an_event, candidates_of
from tests.support.kafka.broker import free_ports
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from tests.support.waiting import wait_until
from workers.admission.policy import Admitted
from workers.admission.service import Admission
from workers.postgres.database import Database

ROOT = Path(__file__).parents[2]
WITHIN = timedelta(seconds=40)


@contextmanager
def served(terminal: Terminal, roles: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A worker process, and the address where it answers; killed at the end if it still runs."""
    port = free_ports(1)[0]
    command = [sys.executable, "-c", "from workers.cli import main; main()", "serve", "bots:app"]
    environment = {
        **os.environ,
        **terminal.environment,
        "PYTHONPATH": str(ROOT),
        "PARLEY_HTTP_PORT": str(port),
    }
    with (terminal.folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--roles", roles], cwd=terminal.folder, env=environment, stdout=log, stderr=log
        )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def answers(url: str) -> bool:
    with contextlib.suppress(urllib.error.URLError, OSError):
        return bool(urllib.request.urlopen(url, timeout=2).status == 200)
    return False


def said_by(terminal: Terminal) -> str:
    return (terminal.folder / "log").read_text("utf-8", "replace")


@pytest.mark.kafka
def test_a_worker_becomes_ready_and_drains_at_the_first_signal(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    terminal.write_app()
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)

    with served(terminal, "intake,turns,delivery") as (process, address):
        wait_until(
            "the worker is ready", lambda: process.poll() is not None or answers(f"{address}/readyz"), WITHIN
        )
        assert process.poll() is None, said_by(terminal)
        process.send_signal(signal.SIGTERM)
        code = process.wait(WITHIN.total_seconds())

    assert code == 0, said_by(terminal)
    assert "Traceback" not in said_by(terminal)


@pytest.mark.kafka
def test_the_second_signal_ends_the_process_at_once(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    terminal.write_app()
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)

    with served(terminal, "intake") as (process, address):
        wait_until(
            "the worker is alive", lambda: process.poll() is not None or answers(f"{address}/healthz"), WITHIN
        )
        assert process.poll() is None, said_by(terminal)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        code = process.wait(WITHIN.total_seconds())

    assert code in (128 + signal.SIGINT, 128 + signal.SIGTERM)


WAITING = """
    import asyncio
    from pathlib import Path
    from workers.agents.agent import Agent, Subscription
    from workers.app import App
    from workers.channels.lab import LabChannel

    async def waits(turn):
        await turn.reply("before")
        while not Path("go").exists():
            await asyncio.sleep(0.05)
        await turn.reply("after")

    helper = Agent("echo", runs=waits, subscriptions=[Subscription("lab")])
    app = App("test", agents=[helper], channels=[LabChannel()])
"""


async def admit_one(url: str) -> None:
    database = await Database.open(url, max_size=1)
    try:
        [admitted] = await Admission(database).admit(candidates_of(an_agent(), [an_event()]))
        assert isinstance(admitted, Admitted)
    finally:
        await database.close()


def one_row(url: str, statement: str) -> tuple[Any, ...]:
    with psycopg.connect(url) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return row


LOCKS_OF_OTHERS = """
    select count(*) from pg_locks
     where pid <> pg_backend_pid() and locktype <> 'virtualxid'
       and database = (select oid from pg_database where datname = current_database())
"""


@pytest.mark.rule("EN-40")
def test_what_a_second_signal_cuts_off_is_finished_by_the_next_worker(
    terminal: Terminal, database_url: str
) -> None:
    terminal.write_app(source=WAITING)
    terminal.reach(database_url)
    # Without any broker: the turns role needs none to run turns.
    terminal.environment |= {"PARLEY_KAFKA_BOOTSTRAP": "127.0.0.1:1", "PARLEY_LEASE": "2s"}
    asyncio.run(admit_one(database_url))
    replies = "select count(*) from deliveries"

    with served(terminal, "turns") as (process, _address):
        wait_until("it has said one thing", lambda: one_row(database_url, replies) == (1,), WITHIN)
        process.send_signal(signal.SIGTERM)
        wait_until("it drains", lambda: "worker.draining" in said_by(terminal), WITHIN)
        process.send_signal(signal.SIGTERM)
        code = process.wait(5)
    assert code == 128 + signal.SIGTERM
    assert one_row(database_url, "select status from runs") == ("running",)
    wait_until("nothing is locked", lambda: one_row(database_url, LOCKS_OF_OTHERS) == (0,), WITHIN)

    (terminal.folder / "go").touch()
    with served(terminal, "turns"):
        wait_until(
            "the next one ended it",
            lambda: one_row(database_url, "select status from runs") == ("succeeded",),
            WITHIN,
        )
    assert one_row(database_url, "select crashes, epoch from runs") == (1, 3)
    assert one_row(
        database_url, "select string_agg(convert_from(body, 'UTF8'), ',' order by position) from deliveries"
    ) == ("before,after",)


def test_missing_settings_end_with_a_line_each(terminal: Terminal) -> None:
    terminal.write_app()

    said = terminal.parley("serve", "bots:app")

    assert said.code == 1
    assert len(said.errors) == 2


def test_a_database_without_tables_ends_with_one_line_that_says_what_to_run(
    terminal: Terminal, empty_database_url: str
) -> None:
    terminal.write_app()
    terminal.reach(empty_database_url)
    terminal.environment["PARLEY_KAFKA_BOOTSTRAP"] = "127.0.0.1:1"

    with served(terminal, "delivery") as (process, _address):
        code = process.wait(WITHIN.total_seconds())

    assert code == 1
    assert said_by(terminal).splitlines()[-1].startswith("error: ")
    assert said_by(terminal).endswith("run `parley migrate`\n")
    assert "Traceback" not in said_by(terminal)


@pytest.mark.kafka
def test_a_missing_topic_ends_with_one_line_that_says_what_to_run(
    terminal: Terminal, database_url: str, kafka: KafkaCluster
) -> None:
    terminal.write_app()
    terminal.reach(database_url, kafka)
    terminal.use_topics(Topics.fresh())

    with served(terminal, "intake") as (process, _address):
        code = process.wait(WITHIN.total_seconds())

    assert code == 1
    assert said_by(terminal).splitlines()[-1].startswith("error: Kafka topics missing: ")
    assert "Traceback" not in said_by(terminal)


STUCK = """
import asyncio, time
from workers.cli.serve import run_worker

async def agent():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def live():
    global held
    held = [asyncio.create_task(agent()), asyncio.create_task(asyncio.to_thread(time.sleep, 3600))]
    await asyncio.sleep(0.1)

run_worker(live())
"""


def test_an_agent_that_swallows_its_cancellation_does_not_keep_the_process() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    ended = subprocess.run(
        [sys.executable, "-c", STUCK], env=environment, timeout=WITHIN.total_seconds(), check=False
    )

    assert ended.returncode == 0
