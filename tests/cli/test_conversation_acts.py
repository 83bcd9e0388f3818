"""`parley conversations reset|delete --wait|--cancel` and `prune`, and `parley runs cancel --agent`."""

import psycopg
import pytest

from tests.cli.desk import Terminal
from tests.cli.test_conversations import BY_IDENTITY, a_conversation, rows_of_every_table

RUN = """
    insert into runs (id, lane_id, generation, position, agent, memory_key, channel, account, event_id, event)
    select gen_random_uuid(), %s, 0, n, 'helper', 'support', 'slack', 'T1', 'Ev.' || n, 'a planted word'
      from generate_series(%s::int, %s::int) n returning id::text
"""
HELD = """
    with session as (insert into worker_sessions (id, worker, lease_until)
                     values (gen_random_uuid(), 'w', now() + interval '1 hour') returning id),
         started as (update runs set status = 'running' where id = %s::uuid returning id, lane_id),
         owned as (update lanes set owner_run = started.id, epoch = 1 from started where lanes.id = started.lane_id)
    insert into turns (lane_id, run_id, epoch, session_id)
    select lane_id, started.id, 1, session.id from started, session
"""


def runs_in(url: str, number: int, first: int, last: int) -> list[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [row[0] for row in connection.execute(RUN, (number, first, last)).fetchall()]


def begin(url: str, run_id: str, *, released: bool = False) -> None:
    """A worker has claimed the run; `released` where it has given the turn up for a later try."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(HELD, (run_id,))
        if released:
            connection.execute("update turns set session_id = null")


@pytest.mark.rule("CM-64", "CM-60")
@pytest.mark.parametrize("act", ["reset", "delete"])
def test_an_active_turn_is_waited_for_as_long_as_was_said_and_named(
    terminal: Terminal, database_url: str, act: str
) -> None:
    terminal.reach(database_url)
    number = a_conversation(database_url)
    [run_id, behind] = runs_in(database_url, number, 1, 2)
    begin(database_url, run_id)

    refused = terminal.parley("conversations", act, *BY_IDENTITY)
    waited = terminal.parley("conversations", act, *BY_IDENTITY, "--wait", "--within", "0.2")
    unclear = terminal.parley("conversations", act, *BY_IDENTITY, "--wait", "--cancel")

    assert (refused.code, waited.code, unclear.code) == (1, 1, 2)
    assert "--wait" in refused.err
    assert all(run_id in said.err for said in (refused, waited))
    assert f"for run {run_id}" in waited.err.splitlines()[0]
    assert "did not end within 0.2 s" in waited.errors[0]
    with psycopg.connect(database_url) as connection:
        left = connection.execute(
            "select (select count(*) from audit), (select count(*) from pauses)"
        ).fetchone()
        held = connection.execute(
            "select due_at < now() + interval '2 seconds' from runs where id = %s", [behind]
        ).fetchone()
    assert (left, held) == ((0, 0), (True,))


@pytest.mark.rule("CM-64")
@pytest.mark.parametrize("act", ["reset", "delete"])
def test_a_turn_that_backs_off_is_cancelled_and_the_act_follows(
    terminal: Terminal, database_url: str, act: str
) -> None:
    terminal.reach(database_url)
    number = a_conversation(database_url)
    [run_id, _] = runs_in(database_url, number, 1, 2)
    begin(database_url, run_id, released=True)

    said = terminal.parley("conversations", act, str(number), "--cancel", "--json")

    assert (said.code, said.document["generation"], said.document["cancelled_runs"]) == (0, 1, 1)
    with psycopg.connect(database_url) as connection:
        acts = connection.execute("select actor, act from audit order by id").fetchall()
        statuses = connection.execute("select distinct status from runs").fetchall()
    assert acts == [("ann", "run.cancel"), ("ann", f"conversation.{act}")]
    assert statuses == [("cancelled",)]


@pytest.mark.rule("CM-60", "CM-58")
def test_memory_is_pruned_by_the_limits_of_the_app_and_only_counted_where_that_was_asked(
    terminal: Terminal, database_url: str
) -> None:
    app = terminal.write_app()
    terminal.reach(database_url)
    a_conversation(database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update items set created_at = now() - interval '31 days' where event_id <> 'e3'")
        connection.execute(
            "insert into mailbox (channel, account, chat, key, direction, body, created_at)"
            " values ('lab', 'a', 'c', 'k', 'in', 'b', now() - interval '1 year')"
        )
    before = rows_of_every_table(database_url)

    without = terminal.parley("conversations", "prune", "--dry-run", "--json")
    counted = terminal.parley("conversations", "prune", "--app", app, "--dry-run", "--json")
    untouched = rows_of_every_table(database_url)
    removed = terminal.parley("conversations", "prune", "--app", app, "--json")
    again = terminal.parley("conversations", "prune", "--app", app, "--json")

    assert [said.code for said in (without, counted, removed, again)] == [0] * 4
    assert without.document["rows"].get("items", 0) == 0
    assert untouched == before
    assert counted.document["rows"]["items"] == removed.document["rows"]["items"] == 2
    assert again.document["rows"]["items"] == 0
    after = rows_of_every_table(database_url)
    assert {table for table in before if after[table] != before[table]} == {"items", "audit", "leases"}
    with psycopg.connect(database_url) as connection:
        acts = connection.execute("select actor, act, detail::text from audit").fetchall()
    assert acts == [("ann", "conversations.prune", '{"items": 2}')]


@pytest.mark.rule("CM-79")
def test_all_open_runs_of_an_agent_are_counted_first_and_cancelled_in_batches_when_told(
    terminal: Terminal, database_url: str
) -> None:
    terminal.reach(database_url)
    number = a_conversation(database_url)
    runs = runs_in(database_url, number, 1, 250)
    begin(database_url, runs[0])

    counted = terminal.parley("runs", "cancel", "--agent", "helper", "--json")
    told = terminal.parley("runs", "cancel", "--agent", "helper")
    with psycopg.connect(database_url) as connection:
        still_open = connection.execute("select count(*) from runs where finished_at is null").fetchone()
    done = terminal.parley("runs", "cancel", "--agent", "helper", "--yes", "--json")
    again = terminal.parley("runs", "cancel", "--agent", "nobody", "--yes")

    assert counted.document == {"done": False, "agent": "helper", "open_runs": 250}
    assert (told.code, still_open) == (0, (250,))
    assert "nothing was done: give --yes" in told.out
    assert {line["run_id"]: line["outcome"] for line in done.document} == {
        **dict.fromkeys(runs, "cancelled"),
        runs[0]: "requested",
    }
    assert (again.code, "no open runs" in again.out) == (0, True)
    with psycopg.connect(database_url) as connection:
        audited = connection.execute(
            "select count(distinct subject) from audit where act = 'run.cancel'"
        ).fetchone()
        texts = connection.execute("select count(*) from audit where audit::text like '%planted%'").fetchone()
    assert (audited, texts) == ((250,), (0,))
