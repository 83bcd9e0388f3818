"""What a cluster must promise is asked of the broker and named where it is less; a rewind is shown first."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.desk import Terminal
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from workers.cli.preflight import retention_problems, weak_promises
from workers.kafka.topics import TopicPromises

DAY = timedelta(days=1)
SAFE = TopicPromises(3 * DAY, 2, False)


@pytest.mark.rule("EN-38")
@pytest.mark.parametrize(
    ("replication", "promised", "says"),
    [
        (3, SAFE, []),
        (1, TopicPromises(3 * DAY, 1, False), ["replication 1"]),
        (3, TopicPromises(3 * DAY, 1, False), ["min.insync.replicas 1"]),
        (3, TopicPromises(3 * DAY, 3, False), ["nothing can be written"]),
        (3, TopicPromises(3 * DAY, 2, True), ["unclean.leader.election"]),
        (1, TopicPromises(3 * DAY, 1, True), ["replication 1", "unclean.leader.election"]),
    ],
)
def test_each_weak_promise_is_a_line(replication: int, promised: TopicPromises, says: list[str]) -> None:
    lines = weak_promises("channel.events", replication, promised)

    assert len(lines) == len(says)
    assert all(word in line for word, line in zip(says, lines, strict=True))


@pytest.mark.rule("EN-38")
@pytest.mark.parametrize(
    ("kept", "says"),
    [
        (3 * DAY, []),
        (None, ["for ever"]),
        (7 * DAY, ["at least a day more"]),
        (DAY, ["PARLEY_LONGEST_OUTAGE"]),
    ],
)
def test_a_retention_that_does_not_outlive_an_outage_is_an_error(
    kept: timedelta | None, says: list[str]
) -> None:
    lines = retention_problems("channel.events", kept, 7 * DAY, 2 * DAY)

    assert len(lines) == len(says)
    assert all(word in line for word, line in zip(says, lines, strict=True))


@pytest.mark.kafka
@pytest.mark.rule("EN-38")
def test_the_broker_is_asked_for_its_promises(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    app = terminal.write_app()
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)
    terminal.environment["PARLEY_LONGEST_OUTAGE"] = "8d"

    checked = terminal.parley("check", app)
    looked = terminal.parley("doctor", "--json")

    assert any("an outage of PARLEY_LONGEST_OUTAGE (8 days" in line for line in checked.errors)
    assert (
        "min.insync.replicas 1, kept for 7 days, 0:00:00, unclean election off"
        in (looked.document["kafka"][topics.events])
    )


@pytest.mark.kafka
@pytest.mark.rule("EN-38")
def test_a_rewind_is_shown_before_it_is_done(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)

    shown = terminal.parley("topics", "rewind", "--since", "2026-01-01T00:00:00")
    assert (shown.code, len(shown.errors)) == (1, 1)
    assert "too old" in shown.err

    since = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
    shown = terminal.parley("topics", "rewind", "--since", since)
    done = terminal.parley("topics", "rewind", "--since", since, "--yes", "--json")

    assert (shown.code, done.code) == (0, 0)
    assert "nothing was done" in shown.out
    assert (done.document["done"], done.document["records_again"]) == (True, 0)
