"""The command line as an operator meets it: an environment, a directory with an app, and what each command said."""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.schemas.samples import a_secret
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from workers.cli.program import program

APP = """
    from datetime import timedelta
    from pathlib import Path
    from schemas.keys import KeyFile
    from workers.agents.agent import Agent, Subscription
    from workers.app import App
    from workers.channels.lab import LabChannel
    from workers.memory.access import Allow
    from workers.memory.limits import Conversations

    async def idle(turn):
        pass

    async def allow(access):
        return Allow()

    helper = Agent("helper", runs=idle, conversation=True, subscriptions=[Subscription("slack")])
    slack = LabChannel("slack", keys=KeyFile(Path("slack.keys"), "slack"), transport_timeout=timedelta(seconds=5))
    app = App("test", agents=[helper], channels=[slack], conversations=Conversations(allow))
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on its output."""
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("warning: ")]


@dataclass(slots=True)
class Terminal:
    """Runs commands in `folder` with these PARLEY_* variables."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def write_app(self, name: str = "bots", source: str = APP) -> str:
        """An app beside a key file; returns its module:attr."""
        self.folder.joinpath(f"{name}.py").write_text(textwrap.dedent(source), "utf-8")
        keys = self.folder / "slack.keys"
        keys.write_text(f"first {a_secret('slack')}\n", "utf-8")
        keys.chmod(0o600)
        return f"{name}:app"

    def reach(self, database_url: str | None = None, kafka: KafkaCluster | None = None) -> None:
        if database_url is not None:
            self.environment["PARLEY_DATABASE_URL"] = database_url
        if kafka is not None:
            self.environment["PARLEY_KAFKA_BOOTSTRAP"] = kafka.bootstrap

    def use_topics(self, topics: Topics) -> None:
        self.environment |= {
            "PARLEY_EVENTS_TOPIC": topics.events,
            "PARLEY_DELIVERIES_TOPIC": topics.deliveries,
            "PARLEY_DEAD_TOPIC": topics.dead,
            "PARLEY_IDEMPOTENCY_TTL": "9d",
        }

    def parley(self, *words: str, environment: Mapping[str, str] | None = None) -> Said:
        """Run one command in this process."""
        result = CliRunner().invoke(program, words, env={**self.environment, **(environment or {})})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Said(result.exit_code, result.stdout, result.stderr)
