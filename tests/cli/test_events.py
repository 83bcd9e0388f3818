"""Events by hand: published, refused, shown once, and sent in again."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from schemas.reason import Reason
from schemas.signing import SigningKey, VerifyKey
from schemas.verdict import VerifiedEvent, verify_record
from tests.cli.desk import Terminal
from tests.schemas.samples import a_secret, an_event
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from workers.intake.dead_letters import Refusal, letter
from workers.kafka.publish import publish
from workers.kafka.reader import read_topic
from workers.kafka.record import Record
from workers.kafka.settings import KafkaSettings

OPERATOR_KEY = SigningKey.parse("operator", a_secret("operator"))


def on_events_topic(kafka: KafkaCluster, topics: Topics, key: VerifyKey) -> list[VerifiedEvent]:
    """What stands on the events topic, proven by `key`."""

    async def read() -> list[Record]:
        return [record async for record in read_topic(KafkaSettings(kafka.bootstrap), topics.events)]

    return [
        verify_record(
            record.headers,
            record.key,
            record.value,
            lambda channel: [key],
            datetime.now(UTC),
            timedelta(days=1),
        )
        for record in asyncio.run(read())
    ]


def bury(kafka: KafkaCluster, topics: Topics, reasons: Sequence[Reason]) -> list[str]:
    """One letter a reason, each written twice; returns their keys."""
    value, now, settings = (
        an_event(event_id="Ev.dead").encode(),
        datetime.now(UTC),
        KafkaSettings(kafka.bootstrap),
    )
    keys = []

    async def write() -> None:
        for offset, reason in enumerate(reasons):
            record = Record(topics.events, 0, offset, b"key", value, [("ce_id", b"Ev.dead")], 0.0)
            key, kept, headers = letter(Refusal(record, reason, "a field"), now)
            assert key is not None
            for _ in range(2):
                await publish(settings, topics.dead, key, kept or b"", headers)
            keys.append(key.decode())

    asyncio.run(write())
    return keys


def with_key_file(terminal: Terminal) -> str:
    path = terminal.folder / "operator.keys"
    path.write_text(f"operator {a_secret('operator')} channel=slack\n", "utf-8")
    return str(path)


@pytest.mark.kafka
def test_an_event_published_by_hand_is_proven_and_its_position_is_said(
    terminal: Terminal, kafka: KafkaCluster, topics: Topics
) -> None:
    terminal.reach(kafka=kafka)
    terminal.use_topics(topics)

    said = terminal.parley(
        "publish", "--channel", "slack", "--account", "T1", "--chat", "C1", "--text", "hello", "--principal", "U1",
        "--key-file", with_key_file(terminal), "--json",
    )  # fmt: skip

    assert said.code == 0
    found = on_events_topic(kafka, topics, OPERATOR_KEY.verify_key("slack"))
    assert [event.event.event_id for event in found] == [said.document["event_id"]]
    assert said.document["topic"] == topics.events
    assert said.document["offset"] == 0


@pytest.mark.kafka
@pytest.mark.rule("EN-5")
def test_a_dead_letter_is_listed_once_and_replayed_under_its_own_id_by_an_audited_key(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)
    (key,) = bury(kafka, topics, [Reason.TOO_OLD])

    listed = terminal.parley("dead", "list", "--json")
    shown = terminal.parley("dead", "show", key, "--json")
    replayed = terminal.parley("dead", "replay", key, "--key-file", with_key_file(terminal), "--json")

    assert [(each["key"], each["copies"]) for each in listed.document] == [(key, 2)]
    assert "hello" not in listed.out + shown.out
    assert (replayed.code, [each["event_id"] for each in replayed.document]) == (0, ["Ev.dead"])
    proven = on_events_topic(kafka, topics, OPERATOR_KEY.verify_key("slack"))
    assert [(each.event.event_id, each.event.text) for each in proven] == [("Ev.dead", "hello")]
    with psycopg.connect(database_url) as connection:
        acts = connection.execute("select actor, act, subject, detail->'key_ids'->>0 from audit").fetchall()
    assert acts == [("ann", "dead.replay", key, "operator")]


@pytest.mark.kafka
@pytest.mark.rule("EN-5")
def test_what_nobody_proved_cannot_be_replayed(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)
    keys = bury(kafka, topics, [Reason.UNAUTHENTICATED, Reason.INVALID_JSON])

    said = [terminal.parley("dead", "replay", key, "--key-file", with_key_file(terminal)) for key in keys]

    assert [each.code for each in said] == [1, 1]
    assert "unauthenticated" in said[0].errors[0]
    assert on_events_topic(kafka, topics, OPERATOR_KEY.verify_key("slack")) == []
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from audit").fetchone() == (0,)


@pytest.mark.kafka
def test_topics_are_created_once(terminal: Terminal, kafka: KafkaCluster) -> None:
    fresh = Topics.fresh()
    terminal.reach(kafka=kafka)
    terminal.use_topics(fresh)
    terminal.environment |= {"PARLEY_TOPIC_REPLICATION": "1", "PARLEY_TOPIC_PARTITIONS": "2"}

    first = terminal.parley("topics", "create", "--json")
    second = terminal.parley("topics", "create", "--json")
    listed = terminal.parley("topics", "list", "--json")

    assert sorted(first.document["created"]) == sorted(fresh.names())
    assert second.document["created"] == []
    assert {(line["topic"], line["partitions"]) for line in listed.document} == {
        (name, 2) for name in fresh.names()
    }
