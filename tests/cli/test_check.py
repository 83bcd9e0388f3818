"""`parley check` names each mistake in one line and changes nothing."""

import psycopg
import pytest

from migrations import runner
from tests.cli.desk import APP, Terminal
from tests.cli.test_conversations import a_conversation, rows_of_every_table
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics


def contents(url: str) -> list[tuple[object, ...]]:
    """What a write, a migration or a new identity would change."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select c.relname, c.relkind::text, c.relfilenode::text, c.relnatts from pg_class c order by c.oid"
        ).fetchall()
        for name in ("lanes", "conversations", "runs", "audit", "alembic_version"):
            if connection.execute("select to_regclass(%s)", [name]).fetchone() != (None,):
                rows = connection.execute(f"select t::text, t.xmin::text from {name} t order by 1")
                found += [(name, *row) for row in rows]
    return found


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


OPEN_RUN = """
    with lane as (insert into lanes (key, kind) values ('{agent}', 'conversation') returning id)
    insert into runs (id, lane_id, generation, position, agent, memory_key, channel, account, event_id, event)
    select gen_random_uuid(), id, 0, 1, '{agent}', '{key}', 'slack', 'T1', 'Ev.1', '' from lane
"""


@pytest.mark.kafka
@pytest.mark.rule("EN-48", "CM-67")
def test_a_sound_installation_passes_and_is_left_as_it_was(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    app = terminal.write_app()
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)
    before = contents(database_url)

    said = terminal.parley("check", app)

    assert (said.code, said.errors) == (0, [])
    assert any("replication 1" in line for line in said.warnings)
    assert any("pruning of conversation items is not enabled" in line for line in said.warnings)
    assert contents(database_url) == before


@pytest.mark.rule("EN-48")
def test_each_mistake_in_the_settings_and_the_app_is_one_line_and_no_secret_is_shown(
    terminal: Terminal,
) -> None:
    terminal.write_app()
    terminal.environment |= {
        "PARLEY_DATABASE_URL": "mysql://user:hunter2@host/db",
        "PARLEY_SLOTS": "none",
        "PARLEY_LEASE": "15 parsecs",
        "PARLEY_IDEMPOTENCY_TTL": "1h",
    }

    said = terminal.parley("check", "bots:nothing", "--offline")

    assert said.code == 1
    for name in ("PARLEY_DATABASE_URL", "PARLEY_KAFKA_BOOTSTRAP", "PARLEY_SLOTS", "PARLEY_LEASE"):
        assert len([line for line in said.errors if name in line]) == 1, said.err
    assert any("bots:app" in line for line in said.errors)
    assert "hunter2" not in said.out + said.err
    assert said.err.splitlines() == said.errors + said.warnings


def test_a_transport_timeout_above_the_grace_period_is_an_error(terminal: Terminal) -> None:
    app = terminal.write_app()
    terminal.environment |= {
        "PARLEY_DATABASE_URL": "postgresql://unused",
        "PARLEY_KAFKA_BOOTSTRAP": "unused:9092",
        "PARLEY_GRACE": "5s",
    }

    said = terminal.parley("check", app, "--offline")

    assert (said.code, len(said.errors)) == (1, 1)
    assert "transport timeout" in said.errors[0]


def test_a_key_file_that_everybody_may_read_is_a_warning_and_a_broken_one_an_error(
    terminal: Terminal,
) -> None:
    app = terminal.write_app()
    terminal.environment |= {
        "PARLEY_DATABASE_URL": "postgresql://unused",
        "PARLEY_KAFKA_BOOTSTRAP": "unused:9092",
    }
    keys = terminal.folder / "slack.keys"
    keys.chmod(0o644)

    readable = terminal.parley("check", app, "--offline")
    keys.write_text("first whsec_tooshort\n", "utf-8")
    broken = terminal.parley("check", app, "--offline")

    assert readable.code == 0
    assert any("slack.keys is readable by everybody" in line for line in readable.warnings)
    assert broken.code == 1
    assert any("slack.keys:1:" in line for line in broken.errors)
    assert "tooshort" not in broken.err


@pytest.mark.kafka
@pytest.mark.rule("CM-67")
@pytest.mark.parametrize("version", sorted(runner.known() - {runner.head()}))
def test_an_older_schema_is_not_migrated(
    terminal: Terminal, empty_database_url: str, kafka: KafkaCluster, topics: Topics, version: str
) -> None:
    app = terminal.write_app()
    terminal.reach(empty_database_url, kafka)
    terminal.use_topics(topics)
    runner.upgrade(empty_database_url, version)
    execute(empty_database_url, OPEN_RUN.format(agent="retired", key="x"))
    before = contents(empty_database_url)

    said = terminal.parley("check", app)

    assert said.code == 1
    assert said.errors == [
        f"error: the schema is older ({version}) than this version's {runner.head()}: run `parley migrate`"
    ]
    assert contents(empty_database_url) == before
    assert runner.current(empty_database_url) == version


@pytest.mark.kafka
@pytest.mark.rule("EN-48", "CM-67")
@pytest.mark.parametrize(
    ("statements", "says"),
    [
        ([], "run `parley migrate`"),
        (
            [
                "create table alembic_version (version_num varchar(32) not null)",
                "insert into alembic_version values ('9999')",
            ],
            "use a newer parley",
        ),
    ],
)
def test_another_schema_is_named_and_left_alone(
    terminal: Terminal,
    empty_database_url: str,
    kafka: KafkaCluster,
    topics: Topics,
    statements: list[str],
    says: str,
) -> None:
    app = terminal.write_app()
    terminal.reach(empty_database_url, kafka)
    terminal.use_topics(topics)
    execute(empty_database_url, *statements)
    before = contents(empty_database_url)

    said = terminal.parley("check", app)

    assert said.code == 1
    assert len(said.errors) == 1
    assert says in said.errors[0]
    assert runner.head() in said.errors[0]
    assert contents(empty_database_url) == before


UNBOUND_RUN = """
    with lane as (insert into lanes (key, kind) values ('unbound', 'run') returning id)
    insert into runs (id, lane_id, generation, position, agent, channel, account, event_id, event)
    select gen_random_uuid(), id, 0, 1, 'helper', 'slack', 'T1', 'Ev.2', '' from lane
"""


@pytest.mark.kafka
@pytest.mark.rule("EN-48", "CM-79", "CM-67")
def test_open_runs_of_unknown_agents_and_changed_memory_keys_are_listed_until_they_are_cancelled(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    app = terminal.write_app()
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)
    execute(
        database_url,
        OPEN_RUN.format(agent="retired", key="x"),
        OPEN_RUN.format(agent="helper", key="older"),
        UNBOUND_RUN,
    )
    before = contents(database_url)

    said = terminal.parley("check", app)

    assert said.code == 0
    open_runs = [line for line in said.warnings if "open run" in line]
    assert len(open_runs) == 2, open_runs
    assert any("1 open run of agent retired" in line for line in open_runs)
    assert any("memory key older, and the agent's is now helper" in line for line in open_runs)
    assert contents(database_url) == before
    for agent in ("retired", "helper"):
        assert any(f"`parley runs cancel --agent {agent} --yes`" in line for line in open_runs)
        assert terminal.parley("runs", "cancel", "--agent", agent, "--yes", "--json").code == 0
    assert not any("open run" in line for line in terminal.parley("check", app).warnings)


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [("ann secret", 0o600, ":1:"), (f"ann {'0' * 64}", 0o644, "chmod"), (f"ann {'0' * 64}", 0o600, None)],
    ids=["broken", "open to all", "sound"],
)
def test_a_token_file_that_no_worker_would_start_with_is_an_error(
    terminal: Terminal, text: str, mode: int, says: str | None
) -> None:
    app = terminal.write_app()
    tokens = terminal.folder / "operators"
    tokens.write_text(f"{text}\n", "utf-8")
    tokens.chmod(mode)
    terminal.environment |= {
        "PARLEY_DATABASE_URL": "postgresql://unused",
        "PARLEY_KAFKA_BOOTSTRAP": "unused:9092",
        "PARLEY_OPERATOR_TOKENS_FILE": str(tokens),
    }

    said = terminal.parley("check", app, "--offline")

    assert [says in line for line in said.errors if says] == ([True] if says else [])
    assert (said.code == 0) is (says is None)
    assert "secret" not in said.err


@pytest.mark.kafka
def test_missing_topics_and_a_retention_beyond_the_reservations_are_errors(
    terminal: Terminal, database_url: str, kafka: KafkaCluster, topics: Topics
) -> None:
    app = terminal.write_app()
    terminal.reach(database_url, kafka)
    terminal.use_topics(topics)

    too_long = terminal.parley("check", app, environment={"PARLEY_IDEMPOTENCY_TTL": "7d"})
    missing = terminal.parley("check", app, environment={"PARLEY_DEAD_TOPIC": "not.there"})

    assert any("PARLEY_IDEMPOTENCY_TTL (7 days" in line for line in too_long.errors)
    assert any("not.there" in line and "parley topics create" in line for line in missing.errors)


def test_services_that_are_away_are_named_in_one_line_each(terminal: Terminal) -> None:
    app = terminal.write_app()
    terminal.environment |= {
        "PARLEY_DATABASE_URL": "postgresql://parley:hunter2@127.0.0.1:1/parley",
        "PARLEY_KAFKA_BOOTSTRAP": "127.0.0.1:1",
    }

    said = terminal.parley("check", app)

    assert said.code == 1
    assert len(said.errors) == 2
    assert "hunter2" not in said.err


AWAY = "127.0.0.1:1"


@pytest.mark.rule("CM-67")
def test_a_check_makes_no_identity_and_no_row_of_any_table(terminal: Terminal, database_url: str) -> None:
    app = terminal.write_app()
    terminal.reach(database_url)
    terminal.environment["PARLEY_KAFKA_BOOTSTRAP"] = AWAY
    a_conversation(database_url)
    execute(database_url, OPEN_RUN.format(agent="helper", key="helper"))
    before = contents(database_url), rows_of_every_table(database_url)

    said = [terminal.parley("check", app, *form) for form in ((), ("--json",), ("--offline",))]

    assert all("127.0.0.1:1" in line or "Kafka" in line for line in said[0].errors)
    assert (contents(database_url), rows_of_every_table(database_url)) == before


@pytest.mark.rule("CM-79")
def test_an_agent_that_keeps_no_memory_any_more_has_a_changed_key(
    terminal: Terminal, database_url: str
) -> None:
    app = terminal.write_app(source=APP.replace("conversation=True, ", ""))
    terminal.reach(database_url)
    terminal.environment["PARLEY_KAFKA_BOOTSTRAP"] = AWAY
    execute(database_url, OPEN_RUN.format(agent="helper", key="helper"))

    said = terminal.parley("check", app)

    assert any("memory key helper, and it now keeps none" in line for line in said.warnings)
