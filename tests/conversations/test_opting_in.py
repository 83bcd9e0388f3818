"""Memory is asked for twice, by the app and by the agent; without that there is none, and nothing is made for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from tests.support.events import an_agent
from workers.agents.turn import Turn
from workers.app import Access, Allow, App, Conversations, InvalidApp
from workers.channels.lab import LabChannel
from workers.embedded.dev import dev_worker
from workers.embedded.services import embedded_services
from workers.memory.limits import MissingPolicy
from workers.testing import TestApp, services

TABLES = ("conversations", "items", "notes", "note_operations")


async def echo(turn: Turn) -> None:
    await turn.reply(f"{turn.event.text} {turn.has_conversation}")


async def allow(access: Access) -> Allow:
    return Allow()


@pytest.mark.rule("CM-1", "CM-66", "CM-6")
async def test_an_app_without_conversations_has_the_tables_and_never_writes_a_row() -> None:
    app = App(
        "plain",
        agents=[an_agent("echo", runs=echo), an_agent("second", runs=echo)],
        channels=[LabChannel()],
    )
    async with TestApp(app) as chat:
        for text in ("one", "two", "three"):
            await chat.send(text, chat="room", audience="team")
        await chat.dispatch("echo", "job")
        await chat.settled()

        [row] = await chat.database.fetch(
            "select " + ", ".join(f"(select count(*) from {table})" for table in TABLES)
        )
        kinds = await chat.database.fetch("select distinct kind from lanes")
        frozen = await chat.database.fetch("select 1 from turns where snapshot is not null")
        replies = await chat.replies(chat="room", at_least=6)
        assert tuple(row) == (0, 0, 0, 0)
        assert [kind["kind"] for kind in kinds] == ["run"]
        assert frozen == []
        assert {reply.partition(" ")[2] for reply in replies} == {"False"}
        assert len(await chat.runs()) == 7


@pytest.mark.rule("CM-2")
@pytest.mark.parametrize("conversation", [True, "a key"])
def test_an_agent_that_opts_in_alone_is_a_mistake_of_the_app(conversation: bool | str) -> None:
    with pytest.raises(InvalidApp) as refused:
        App("half", agents=[an_agent("helper", conversation=conversation)], channels=[LabChannel()])

    assert refused.value.problems == (
        "agent 'helper' asks for conversation memory, and the app has none: give App conversations=...",
    )


@pytest.mark.rule("CM-3")
def test_conversations_without_a_policy_are_a_mistake() -> None:
    with pytest.raises(TypeError):
        Conversations()  # type: ignore[call-arg]
    with pytest.raises(MissingPolicy):
        Conversations(authorize=None)  # type: ignore[arg-type]


@pytest.mark.rule("CM-4")
def test_true_stands_for_the_agents_name_and_a_key_for_itself() -> None:
    keys = [
        an_agent("helper", conversation=conversation).memory_key for conversation in (True, "stable", False)
    ]

    assert keys == ["helper", "stable", None]


@pytest.mark.rule("CM-8")
def test_serve_refuses_to_start_without_a_database(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}

    refused = subprocess.run(
        [sys.executable, "-c", "from workers.cli import main; main()", "serve", "examples.desk:app"],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert refused.returncode != 0
    assert "PARLEY_DATABASE_URL is not set" in refused.stdout + refused.stderr


@pytest.mark.rule("CM-8")
async def test_a_throw_away_database_is_real_gone_at_the_end_and_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with embedded_services() as running:
        assert running.database_url.startswith("postgresql://")

    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "a restart loses history and notes" in warning
    assert "replicas do not share them" in warning


@pytest.mark.rule("CM-8")
async def test_dev_says_what_its_database_is_worth(tmp_path: Path) -> None:
    app = App("plain", agents=[an_agent("echo", runs=echo)], channels=[LabChannel()])

    with structlog.testing.capture_logs() as logs:
        async with dev_worker(app, tmp_path / "data", 0, lambda port, url: None) as worker:
            assert worker.settings.database_url

    [warning] = [line for line in logs if line["event"] == "dev.database_is_embedded"]
    assert (warning["log_level"], warning["data"]) == ("warning", str(tmp_path / "data"))
    assert "history and notes are lost" in warning["advice"]
    assert "replicas do not share them" in warning["advice"]


@pytest.mark.rule("CM-8")
async def test_the_test_kit_warns_once_of_its_throw_away_database() -> None:
    services._services.cache_clear()
    services._template.cache_clear()
    app = App("plain", agents=[an_agent("echo", runs=echo)], channels=[LabChannel()])

    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            async with TestApp(app):
                pass

    [warning] = [line for line in logs if line["event"] == "testing.database_is_embedded"]
    assert warning["log_level"] == "warning"
    assert "history and notes are lost" in warning["advice"]
    assert "replicas do not share them" in warning["advice"]
