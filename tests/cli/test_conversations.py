"""`parley conversations` takes a number or an identity; what is not there is one line and exit code 1."""

import psycopg
import pytest

from schemas.identity import Identity
from tests.cli.desk import Terminal
from workers.memory.binding import conversation_lane_key

IDENTITY = Identity("support", "slack", "T1", "C1/17.5", "direct")
NAMED = ("--memory-key", "support", "--channel", "slack", "--account", "T1")
BY_IDENTITY = (*NAMED, "--chat", "C1/17.5", "--audience", "direct")
ELSEWHERE = (*NAMED, "--chat", "C2", "--audience", "direct")

CONVERSATION = """
    with lane as (insert into lanes (key, kind) values (%s, 'conversation') returning id)
    insert into conversations (lane_id, memory_key, channel, account, chat, audience)
    select id, %s, %s, %s, %s, %s from lane returning lane_id
"""
ITEM = """
    insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes)
    select %s, 0, 'input', 'accepted', gen_random_uuid(), 'e' || n, 'a planted word ' || n, 16
      from generate_series(1, 3) n
"""
NOTE = "insert into notes (lane_id, generation, key, body, body_bytes) values (%s, 0, 'name', 'a planted word', 14)"


def a_conversation(url: str) -> int:
    """One with three items and a note; returns its number."""
    parts = (IDENTITY.memory_key, IDENTITY.channel, IDENTITY.account, IDENTITY.chat, IDENTITY.audience)
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(CONVERSATION, (conversation_lane_key(IDENTITY), *parts)).fetchone()
        assert row is not None
        for statement in (ITEM, NOTE):
            connection.execute(statement, row)
    return int(row[0])


def rows_of_every_table(url: str) -> dict[str, int]:
    with psycopg.connect(url, autocommit=True) as connection:
        names = connection.execute("select relname from pg_stat_user_tables").fetchall()
        return {name: len(connection.execute(f'select from "{name}"').fetchall()) for (name,) in names}


@pytest.mark.rule("CM-60", "CM-17", "CM-61")
def test_a_conversation_is_inspected_by_its_identity_as_by_its_number(
    terminal: Terminal, database_url: str
) -> None:
    terminal.reach(database_url)
    number = a_conversation(database_url)

    by_number = terminal.parley("conversations", "inspect", str(number), "--json")
    by_identity = terminal.parley("conversations", "inspect", *BY_IDENTITY, "--json")
    page = terminal.parley(
        "conversations", "inspect", *BY_IDENTITY, "--limit", "1", "--offset", "1", "--json"
    )

    assert (by_number.code, by_identity.code) == (0, 0)
    assert by_number.document == by_identity.document
    assert by_identity.document["conversation"]["memory_key"] == "support"
    assert [item["body"] for item in page.document["items"]] == ["a planted word 2"]


@pytest.mark.rule("CM-60", "CM-62", "CM-63")
def test_it_is_reset_and_deleted_by_its_identity_twice_and_the_acts_are_audited_without_a_text(
    terminal: Terminal, database_url: str
) -> None:
    terminal.reach(database_url)
    number = a_conversation(database_url)

    kept = terminal.parley("conversations", "reset", *BY_IDENTITY, "--keep-notes", "--json")
    notes = terminal.parley("conversations", "inspect", *BY_IDENTITY, "--json").document["notes"]
    gone = [terminal.parley("conversations", "delete", *BY_IDENTITY, "--json") for _ in range(2)]
    after = terminal.parley("conversations", "inspect", str(number), "--json").document

    assert (kept.code, kept.document["generation"], [note["key"] for note in notes]) == (0, 1, ["name"])
    assert [(said.code, said.document["generation"]) for said in gone] == [(0, 2), (0, 3)]
    assert (after["item_count"], after["note_count"]) == (0, 0)
    assert after["conversation"]["deleted_at"] is not None
    with psycopg.connect(database_url) as connection:
        acts = connection.execute("select actor, act, subject, audit::text from audit order by id").fetchall()
    expected = ["conversation.reset", "conversation.delete", "conversation.delete"]
    assert [act[:3] for act in acts] == [("ann", name, str(number)) for name in expected]
    assert not any("planted" in act[3] for act in acts)


@pytest.mark.rule("CM-61", "CM-60")
@pytest.mark.parametrize("which", [("4711",), ELSEWHERE], ids=["number", "identity"])
def test_one_that_is_not_there_is_one_line_and_creates_nothing(
    terminal: Terminal, database_url: str, which: tuple[str, ...]
) -> None:
    terminal.reach(database_url)
    a_conversation(database_url)
    before = rows_of_every_table(database_url)

    for act in ("inspect", "reset", "delete"):
        for form in ((), ("--json",)):
            said = terminal.parley("conversations", act, *which, *form)
            assert (said.code, said.out, len(said.errors)) == (1, "", 1)
            assert "there is no conversation" in said.err

    assert rows_of_every_table(database_url) == before


@pytest.mark.parametrize(
    ("which", "says"),
    [((), "memory-key"), (NAMED, "--chat, --audience"), (("1", *BY_IDENTITY), "either"), (("x",), "integer")],
    ids=["nothing", "a part", "both", "no number"],
)
def test_a_name_that_is_none_is_a_usage_error(terminal: Terminal, which: tuple[str, ...], says: str) -> None:
    for act in ("inspect", "reset", "delete"):
        said = terminal.parley("conversations", act, *which)
        assert said.code == 2
        assert says in said.err
