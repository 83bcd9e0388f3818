"""Old and new workers at once, over an expand migration that comes while the old ones work, lose and repeat nothing."""

import json
import signal
import subprocess
import textwrap
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from migrations import runner
from tests.rolling.environment import SCHEMA, Served, make_environment, serve
from tests.support.events import an_event, sealed, secret_of
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from tests.support.waiting import eventually
from workers.kafka.producer import RecordProducer
from workers.kafka.settings import KafkaSettings
from workers.postgres.database import Database

WITHIN = timedelta(seconds=90)
CHATS = 6
APP = """
    import asyncio, json, os
    from schemas.signing import SigningKey
    from workers.agents.agent import Agent, Subscription
    from workers.app import App
    from workers.channels.keys import StaticKeys
    from workers.channels.lab import LabChannel
    from workers.memory.access import Allow
    from workers.memory.limits import Conversations

    class Recording(LabChannel):
        async def send(self, outgoing, timeout):
            line = json.dumps({"key": outgoing.key, "text": outgoing.text, "by": os.environ["NAME"]})
            with open("received", "a") as received:
                received.write(line + "\\n")
            return await super().send(outgoing, timeout)

    async def echo(turn):
        await turn.step("think", asyncio.sleep, 0.1)
        await turn.reply(turn.event.text)

    async def allow(access):
        return Allow()

    listens = [Subscription("lab")]
    names = os.environ["AGENTS"].split(",")
    agents = [Agent(name, runs=echo, conversation=True, subscriptions=listens) for name in names]
    lab = Recording(keys=StaticKeys((SigningKey.parse("one", "SECRET"),)))
    app = App("rolling", agents=agents, channels=[lab], conversations=Conversations(allow))
"""


@pytest.fixture(scope="module")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("old"))


class Rolling:
    """One installation that both versions serve."""

    def __init__(self, url: str, kafka: KafkaCluster, topics: Topics, folder: Path, old_python: Path) -> None:
        self.url, self.folder, self._old_python = url, folder, old_python
        self._topics = topics
        self._bootstrap = kafka.bootstrap
        settings = KafkaSettings.embedded(kafka.bootstrap)
        self._settings = settings.with_topics(
            events=topics.events, deliveries=topics.deliveries, dead=topics.dead
        )
        self._producer = RecordProducer(self._settings)
        self.workers: list[Served] = []
        self.published = 0
        (folder / "bots.py").write_text(textwrap.dedent(APP).replace("SECRET", secret_of("one")), "utf-8")

    async def __aenter__(self) -> "Rolling":
        self.database = await Database.open(self.url, max_size=2, application_name="parley-test")
        await self._producer.start(self._topics.events)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        await self._producer.stop()
        await self.database.close()

    def start(self, version: str, *, agents: str = "echo", roles: str = "intake,turns,delivery") -> Served:
        environment = {
            "PARLEY_DATABASE_URL": self.url,
            "PARLEY_KAFKA_BOOTSTRAP": self._bootstrap,
            "PARLEY_KAFKA_SESSION_TIMEOUT": "7s",
            "PARLEY_EVENTS_TOPIC": self._topics.events,
            "PARLEY_DELIVERIES_TOPIC": self._topics.deliveries,
            "PARLEY_DEAD_TOPIC": self._topics.dead,
            "PARLEY_IDEMPOTENCY_TTL": "9d",
            "PARLEY_KAFKA_GROUP": self._topics.events,
            "PARLEY_LEASE": "2s",
            "AGENTS": agents,
        }
        python = self._old_python if version == "old" else None
        worker = serve(f"{version}-{len(self.workers)}", python, self.folder, environment, roles)
        self.workers.append(worker)
        return worker

    async def publish(self, rounds: int = 5) -> None:
        """Some messages to each chat, numbered in the order in which they are sent."""
        events = []
        for _ in range(rounds):
            self.published += 1
            events += [
                an_event(
                    event_id=f"e{chat}.{self.published}", chat=f"c{chat}", text=f"{self.published}@{chat}"
                )
                for chat in range(CHATS)
            ]
        records = [sealed(event) for event in events]
        await self._producer.send_many(
            self._topics.events, [(record.key, record.value, record.headers) for record in records]
        )

    async def value(self, statement: str) -> Any:
        row = await self.database.fetchrow(statement)
        return None if row is None else row[0]

    async def ended(self, runs: int) -> None:
        statement = "select count(*) from runs where finished_at is not null"

        async def holds() -> bool:
            dead = [
                worker for worker in self.workers if worker.process.poll() not in (None, 0, -signal.SIGKILL)
            ]
            assert not dead, dead[0].said()[-3000:]
            return bool(await self.value(statement) >= runs)

        await eventually(f"{runs} runs ended", holds, WITHIN)

    async def sent(self) -> None:
        async def holds() -> bool:
            return bool(await self.value("select count(*) from deliveries where finished_at is null") == 0)

        await eventually("everything is sent", holds, WITHIN)

    def received(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.folder / "received").read_text("utf-8").splitlines()]


@pytest.fixture
async def rolling(
    empty_database_url: str, kafka: KafkaCluster, topics: Topics, tmp_path: Path, old_python: Path
) -> AsyncIterator[Rolling]:
    runner.upgrade(empty_database_url, SCHEMA)
    async with Rolling(empty_database_url, kafka, topics, tmp_path, old_python) as rolling:
        yield rolling


def test_the_old_version_is_the_old_one(old_python: Path, tmp_path: Path) -> None:
    said = subprocess.run(
        [
            old_python,
            "-c",
            "import workers; from migrations import runner; print(workers.__file__, runner.head())",
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()

    assert Path(said[0]).is_relative_to(old_python.parents[1])
    assert said[1] == SCHEMA
    assert runner.head() > SCHEMA


@pytest.mark.kafka
@pytest.mark.rule("EN-49")
@pytest.mark.timeout(400)
async def test_old_and_new_workers_over_a_migration_lose_and_repeat_nothing(rolling: Rolling) -> None:
    old = rolling.start("old")
    await rolling.publish()
    await rolling.ended(CHATS)

    # The expansion comes while the old one works.
    await rolling.publish()
    runner.upgrade(rolling.url)
    await rolling.ended(5 * CHATS + 1)
    new = rolling.start("new")
    await rolling.publish()
    await rolling.ended(12 * CHATS)

    # One of each dies with turns and sends in flight, and the other version takes over; then the last old one leaves.
    await rolling.publish()
    old.signal(signal.SIGKILL)
    await rolling.ended(17 * CHATS)
    another = rolling.start("old")
    await rolling.publish()
    new.signal(signal.SIGKILL)
    await rolling.ended(22 * CHATS)
    rolling.start("new")
    await rolling.publish()
    another.signal(signal.SIGTERM)
    await eventually("the old one left", lambda: not another.alive, WITHIN)
    total = rolling.published * CHATS
    await rolling.ended(total)
    await rolling.sent()

    assert await rolling.value("select count(*) from runs") == total
    assert (
        await rolling.value("select count(distinct event_id) from runs where status = 'succeeded'") == total
    )
    assert await rolling.value("select count(*) from turns") == 0
    keys, firsts = defaultdict(set), dict[str, None]()
    for message in rolling.received():
        keys[message["text"]].add(message["key"])
        firsts.setdefault(message["text"])
    assert {text: len(found) for text, found in keys.items() if len(found) != 1} == {}
    assert len(keys) == total
    for chat in range(CHATS):
        numbers = [int(text.split("@")[0]) for text in firsts if text.endswith(f"@{chat}")]
        assert numbers == sorted(numbers)
    assert {message["by"].split("-")[0] for message in rolling.received()} == {"old", "new"}


@pytest.mark.kafka
@pytest.mark.rule("EN-49")
@pytest.mark.timeout(300)
async def test_an_old_worker_leaves_runs_of_a_new_agent_to_the_new_ones(rolling: Rolling) -> None:
    runner.upgrade(rolling.url)
    rolling.start("old", roles="turns,delivery")
    rolling.start("new", agents="echo,fresh", roles="intake")
    await rolling.publish(1)
    await rolling.ended(CHATS)

    assert (
        await rolling.value("select count(*) from runs where agent = 'fresh' and status = 'queued'") == CHATS
    )
    rolling.start("new", agents="echo,fresh", roles="turns")
    await rolling.ended(2 * CHATS)
    assert await rolling.value("select count(*) from runs where status = 'succeeded'") == 2 * CHATS
