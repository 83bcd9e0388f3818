"""An app that cannot be loaded is explained in one line, with its place."""

import pytest

from tests.cli.desk import APP, Terminal
from workers.cli.loading import AppNotLoaded, load_app


def test_an_app_in_the_current_directory_is_found(terminal: Terminal) -> None:
    assert load_app(terminal.write_app()).name == "test"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("bots", "package.module:app"),
        ("bots:", "package.module:app"),
        ("nowhere:app", "there is no module nowhere"),
        ("bots:helper", "has a Agent, not an App"),
        ("bots:missing", "it has bots:app"),
    ],
)
def test_what_is_wrong_with_the_target_is_said(terminal: Terminal, target: str, says: str) -> None:
    terminal.write_app()

    with pytest.raises(AppNotLoaded, match=says.replace("(", r"\(")):
        load_app(target)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import not_installed_anywhere", "needs not_installed_anywhere, which is not installed"),
        ("def f(:", "cannot be read"),
        ("raise KeyError('password=hunter2')", "failed at import: KeyError"),
    ],
)
def test_a_failing_import_is_one_line_with_its_place_and_no_secret(
    terminal: Terminal, source: str, says: str
) -> None:
    terminal.write_app("broken", source)

    said = terminal.parley("serve", "broken:app", environment=_settings())

    assert said.code == 1
    assert len(said.errors) == 1
    assert says in said.errors[0]
    assert "hunter2" not in said.err
    assert "Traceback" not in said.err


def test_each_problem_of_an_app_is_a_line(terminal: Terminal) -> None:
    source = APP.replace('App("test", agents=[helper]', 'App("", agents=[helper, helper]')
    target = terminal.write_app("broken", source)

    said = terminal.parley("check", target, "--offline", environment=_settings())

    assert said.errors == ["error: the app has no name", "error: two agents are named 'helper'"]


def _settings() -> dict[str, str]:
    return {"PARLEY_DATABASE_URL": "postgresql://unused", "PARLEY_KAFKA_BOOTSTRAP": "unused:9092"}
