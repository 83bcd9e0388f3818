"""`parley pause`, `resume` and `pauses`, as an operator types them."""

import pytest

from tests.cli.desk import Terminal


@pytest.mark.rule("EN-50")
@pytest.mark.parametrize("words", [("agent", "helper"), ("channel", "slack"), ("account", "slack", "T1")])
def test_a_pause_is_made_listed_and_taken_back(
    terminal: Terminal, database_url: str, words: tuple[str, ...]
) -> None:
    terminal.reach(database_url)

    paused = terminal.parley("pause", *words, "--reason", "maintenance")
    again = terminal.parley("pause", *words)
    [line] = terminal.parley("pauses", "--json").document
    resumed = terminal.parley("resume", *words)
    table = terminal.parley("pauses")

    assert (paused.code, again.code, resumed.code) == (0, 1, 0)
    assert "paused already" in again.err
    assert (line["kind"], line["name"], line["actor"], line["reason"]) == (*words[:2], "ann", "maintenance")
    assert table.out == "nothing is paused\n"
    assert terminal.parley("resume", *words).code == 1
