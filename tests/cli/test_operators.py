"""The commands over the database: what they print, and how they end."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from migrations import runner
from tests.cli.desk import Terminal

ROOT = Path(__file__).parents[2]

QUEUED = """
    with lane as (insert into lanes (key, kind) values (%s, 'run') returning id)
    insert into runs (id, lane_id, generation, position, agent, channel, account, event_id, event, reason)
    select gen_random_uuid(), id, 0, 1, 'helper', 'slack', 'T1', 'Ev.1', '', %s from lane returning id::text
"""


def a_queued_run(url: str, reason: str | None = None) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(QUEUED, [(reason or "lane").encode(), reason]).fetchone()
    assert row is not None
    return str(row[0])


def test_migrate_brings_an_empty_database_to_the_newest_schema_and_says_so_twice(
    terminal: Terminal, empty_database_url: str
) -> None:
    terminal.reach(empty_database_url)

    said = [terminal.parley("migrate", "--json"), terminal.parley("migrate", "--json")]

    assert [each.document for each in said] == [{"version": runner.head()}] * 2
    unknown = terminal.parley("migrate", "--to", "nonsense")
    assert (unknown.code, len(unknown.errors)) == (1, 1)


@pytest.mark.rule("EN-27")
def test_a_run_is_listed_cancelled_and_shown(terminal: Terminal, database_url: str) -> None:
    terminal.reach(database_url)
    run_id = a_queued_run(database_url)

    listed = terminal.parley("runs", "list", "--open", "--json")
    cancelled = terminal.parley("runs", "cancel", run_id, "--json")
    shown = terminal.parley("runs", "show", run_id, "--json")

    assert [line["run_id"] for line in listed.document] == [run_id]
    assert [line["outcome"] for line in cancelled.document] == ["cancelled"]
    assert shown.document["run"]["status"] == "cancelled"


def test_tables_for_people_drive_no_terminal(terminal: Terminal, database_url: str) -> None:
    terminal.reach(database_url)
    a_queued_run(database_url, "\x1b[31m[bold]red")

    said = terminal.parley("runs", "list")

    assert "\x1b" not in said.out
    assert "[bold]red" in said.out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("runs", "show", "01890000-0000-7000-8000-000000000000"), 1),
        (("runs", "show", "nonsense"), 2),
        (("runs", "cancel"), 2),
        (("reservations", "release", "1"), 1),
        (("conversations", "delete", "1"), 1),
    ],
)
def test_what_is_not_there_ends_with_one_line_and_its_exit_code(
    terminal: Terminal, database_url: str, words: tuple[str, ...], code: int
) -> None:
    terminal.reach(database_url)

    said = terminal.parley(*words)

    assert said.code == code
    assert "Traceback" not in said.err
    assert len(said.errors) == (1 if code == 1 else 0)


def test_a_database_that_is_away_or_empty_is_told_apart(terminal: Terminal, empty_database_url: str) -> None:
    terminal.reach(empty_database_url)
    empty = terminal.parley("runs", "list")
    terminal.reach("postgresql://parley:hunter2@127.0.0.1:1/parley")
    away = terminal.parley("runs", "list")

    assert (empty.code, away.code) == (1, 3)
    assert "parley migrate" in empty.err
    assert "hunter2" not in away.err


def test_a_port_that_cannot_be_is_a_line_and_no_traceback(terminal: Terminal) -> None:
    terminal.environment["PARLEY_DATABASE_URL"] = "postgresql://ann:planted-secret@127.0.0.1:65536/parley"

    said = terminal.parley("runs", "list")

    assert (said.code, said.errors) == (1, ["error: PARLEY_DATABASE_URL is not a postgresql:// URL"])


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_output_that_takes_nothing_is_not_taken_for_a_database_that_is_away(
    terminal: Terminal, database_url: str, form: tuple[str, ...]
) -> None:
    terminal.reach(database_url)
    command = [sys.executable, "-c", "from workers.cli import main; main()", "runs", "list", *form]
    environment = {**os.environ, **terminal.environment, "PYTHONPATH": str(ROOT)}
    reader, left = os.pipe()
    os.close(reader)

    with Path("/dev/full").open("wb") as full, os.fdopen(left, "wb") as pipe:
        said = [
            subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=environment, check=False)
            for out in (full, pipe)
        ]

    assert [each.returncode for each in said] == [1, 1]
    assert said[0].stderr == b"error: standard output cannot be written: No space left on device\n"
    assert said[1].stderr == b""


def test_the_doctor_reports_what_it_can_and_fails_where_something_is_away(
    terminal: Terminal, database_url: str
) -> None:
    terminal.reach(database_url)
    terminal.environment["PARLEY_KAFKA_BOOTSTRAP"] = "127.0.0.1:1"

    said = terminal.parley("doctor", "--json")

    assert said.code == 3
    assert said.document["database"]["schema"] == runner.head()
    assert abs(said.document["database"]["clock_ahead_seconds"]) < 5
    assert "error" in said.document["kafka"]


DELIVERY = """
    with place as (insert into addresses (channel, account, address) values ('slack', 'T1', 'C1') returning id)
    insert into deliveries (id, key, reply_key, run_id, lane_id, agent, recalled, address_id, channel, account,
                            state, reason, finished_at, body)
    select gen_random_uuid(), 'k', 'k', runs.id, lane_id, agent, false, place.id, channel, account,
           'failed', 'refused', now(), 'a planted word'
      from runs, place returning id::text
"""


@pytest.mark.rule("EN-37")
def test_a_failed_delivery_is_listed_redelivered_under_its_key_and_abandoned_each_act_audited(
    terminal: Terminal, database_url: str
) -> None:
    terminal.reach(database_url)
    a_queued_run(database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute(DELIVERY).fetchone()
    assert row is not None

    listed = terminal.parley("deliveries", "list", "--state", "failed", "--json")
    again = terminal.parley("deliveries", "redeliver", row[0], "--json")
    refused = terminal.parley("deliveries", "redeliver", row[0])
    gone = terminal.parley("deliveries", "abandon", row[0], "--json")
    marked = terminal.parley("deliveries", "mark-sent", row[0], "--provider-id", "P1", "--json")

    assert [line["delivery_id"] for line in listed.document] == [row[0]]
    assert (again.document["state"], again.document["key"]) == ("pending", "k")
    assert (refused.code, len(refused.errors)) == (1, 1)
    assert gone.document["state"] == "failed"
    assert (marked.document["state"], marked.document["provider_id"]) == ("sent", "P1")
    assert "planted" not in listed.out + again.out + terminal.parley("deliveries", "show", row[0]).out
    with psycopg.connect(database_url) as connection:
        acts = connection.execute("select actor, act from audit order by id").fetchall()
    assert acts == [("ann", f"deliveries.{act}") for act in ("redeliver", "abandon", "mark_sent")]
