"""`parley prune` counts, removes and leaves a trace; `parley check` says what is kept for ever."""

import pytest

from tests.cli.desk import Terminal
from tests.cli.test_operators import a_queued_run


@pytest.mark.rule("EN-45")
def test_a_prune_says_what_went_of_each_table(terminal: Terminal, database_url: str) -> None:
    terminal.reach(database_url)
    terminal.environment["PARLEY_KAFKA_BOOTSTRAP"] = "unused:9092"
    a_queued_run(database_url)
    terminal.parley("pause", "agent", "helper")
    terminal.environment["PARLEY_KEEP_AUDIT"] = "1ms"

    counted = terminal.parley("prune", "--dry-run", "--json")
    removed = terminal.parley("prune", "--json")
    table = terminal.parley("prune", "--dry-run")

    assert (counted.code, removed.code, table.code) == (0, 0, 0)
    assert counted.document["rows"] == removed.document["rows"]
    assert removed.document["rows"]["audit"] == 1
    assert removed.document["rows"]["runs"] == 0
    assert "PARLEY_KEEP_RUNS" in table.out


@pytest.mark.rule("EN-45")
def test_retentions_that_do_not_fit_are_named(terminal: Terminal) -> None:
    app = terminal.write_app()
    terminal.environment |= {
        "PARLEY_DATABASE_URL": "postgresql://unused",
        "PARLEY_KAFKA_BOOTSTRAP": "unused:9092",
        "PARLEY_KEEP_ADDRESSES": "30d",
        "PARLEY_KEEP_CONVERSATIONS": "10d",
        "PARLEY_POLL_EVERY": "1s",
    }
    said = terminal.parley("check", app, "--offline")
    assert [line for line in said.errors if "PARLEY_POLL_EVERY" in line] == said.errors

    del terminal.environment["PARLEY_POLL_EVERY"]
    said = terminal.parley("check", app, "--offline")
    assert len(said.errors) == 2
    assert "PARLEY_KEEP_ADDRESSES" in said.err
    assert "PARLEY_KEEP_CONVERSATIONS" in said.err

    terminal.environment |= {"PARLEY_KEEP_ADDRESSES": "90d", "PARLEY_KEEP_CONVERSATIONS": "90d"}
    said = terminal.parley("check", app, "--offline")
    assert said.errors == []
    assert not any("pruning of conversation items" in line for line in said.warnings)
