"""The commands of docs/conversation-memory.md, run on a filled database, say what the page shows."""

import re
from pathlib import Path

import psycopg

from schemas.identity import Identity
from tests.cli.desk import Terminal
from workers.memory.binding import conversation_lane_key

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conversation-memory.md"
BLOCK = re.compile(r"<!-- commands -->\n```text\n(.*?)```\n<!-- /commands -->", re.DOTALL)

ADA = Identity("helper", "web", "main", "ada", "direct")
TEAM = Identity("helper", "slack", "T1", "C1/17.5", "team-7")
LANES = """
    with lane as (insert into lanes (key, kind) values (%s, 'conversation') returning id)
    insert into conversations (lane_id, memory_key, channel, account, chat, audience, created_at)
    select id, %s, %s, %s, %s, %s, '2031-10-01T09:00:00Z' from lane
"""
ITEMS = """
    insert into items (lane_id, generation, kind, status, run_id, event_id, reply_key, body, body_bytes, created_at)
    select 1, 0, kind, status, '00000000-0000-7000-8000-000000000001', event_id, reply_key, body, octet_length(body), at
      from (values ('input', 'accepted', 'e1', null, 'Please remember that I prefer short answers.',
                    '2031-10-01T09:00:00Z'::timestamptz),
                   ('reply', 'sent', null, 'r1', 'Noted.', '2031-10-01T09:00:01Z'),
                   ('input', 'accepted', 'e2', null, 'What answer style do I prefer?', '2031-10-02T08:30:00Z'),
                   ('reply', 'unknown', null, 'r2', 'Short ones.', '2031-10-02T08:30:01Z'))
           as item (kind, status, event_id, reply_key, body, at)
"""
NOTE = """
    insert into notes (lane_id, generation, key, body, body_bytes, updated_at)
    values (1, 0, 'answer-style', 'prefers short answers', 21, '2031-10-01T09:00:01Z')
"""
COMMANDS = (
    "conversations inspect --help",
    "conversations list --memory-key helper",
    "conversations inspect --memory-key helper --channel web --account main --chat ada --audience direct --limit 3",
    "conversations reset 1 --keep-notes",
    "conversations delete 2",
    "conversations prune --dry-run",
    "conversations inspect 9",
)


def test_the_page_shows_what_the_commands_say(terminal: Terminal, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for identity in (ADA, TEAM):
            parts = (
                identity.memory_key,
                identity.channel,
                identity.account,
                identity.chat,
                identity.audience,
            )
            connection.execute(LANES, (conversation_lane_key(identity), *parts))
        connection.execute(ITEMS)
        connection.execute(NOTE)
    terminal.reach(database_url)

    shown = []
    for command in COMMANDS:
        said = terminal.parley(*command.split(), environment={"COLUMNS": "100"})
        lines = "\n".join(line.rstrip() for line in (said.out + said.err).splitlines())
        shown.append(f"$ parley {command}\n" + lines.strip("\n"))
    page = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert page is not None
    assert page[1] == "\n\n".join(shown) + "\n"
