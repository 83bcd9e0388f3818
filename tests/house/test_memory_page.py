"""What docs/conversation-memory.md says is what the code does."""

import re
from pathlib import Path
from typing import Any

import pytest

from schemas.identity import Principal
from tests.support.desk import a_desk
from tests.support.events import an_agent, an_event
from workers.agents.turn import Turn
from workers.app import Access, Allow, App, Deny
from workers.memory.binding import identity_of
from workers.memory.limits import MAX_RETENTION, MAXIMA, Limits
from workers.operations.conversations import delete

TABLES = """
select table_name as name
  from information_schema.tables
 where table_schema = 'public' and table_name not in ('alembic_version', 'worker_sessions')
"""
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "conversation-memory.md").read_text(encoding="utf-8")


@pytest.fixture
def recipe() -> dict[str, Any]:
    [block] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def test_the_table_of_limits_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+)( days)? \| ([\d,]+)(?: days)? \|", PAGE, re.MULTILINE)
    said = {
        name: (int(default.replace(",", "")), int(most.replace(",", ""))) for name, default, _, most in rows
    }
    limits = Limits()
    assert said == {
        **{name: (getattr(limits, name), most) for name, most in MAXIMA.items()},
        "retention": (limits.retention.days, MAX_RETENTION.days),
    }


@pytest.mark.rule("CM-4")
def test_the_recipe_is_an_application_with_memory(recipe: dict[str, Any]) -> None:
    app = recipe["app"]
    assert isinstance(app, App)
    assert app.agents["helper"].memory_key == "helper"


@pytest.mark.parametrize(
    ("who", "audience", "allowed"),
    [
        ("ada", "direct", True),
        ("linus", "direct", False),
        ("linus", "team-7", True),
        ("grace", "team-7", False),
        ("ada", "team-8", False),
    ],
)
async def test_the_recipe_tells_private_chats_from_groups(
    recipe: dict[str, Any], who: str, audience: str, allowed: bool
) -> None:
    event = an_event(account="main", principal=Principal(who), audience=audience)
    access = Access("helper", identity_of("helper", event), event.principal, "dispatch", event)
    assert isinstance(await recipe["authorize"](access), Allow if allowed else Deny)


@pytest.mark.rule("CM-65", "CM-63")
async def test_deletion_leaves_what_the_page_says_and_nothing_else(database_url: str) -> None:
    async def noting(turn: Turn) -> None:
        await turn.set_note("style", "short")
        await turn.reply("noted")

    async with a_desk(database_url, an_agent(runs=noting, conversation=True)) as desk:
        await desk.admit("echo", an_event())
        await desk.work()
        await delete(desk.database, await desk.value("select lane_id from conversations"), "ann")

        tables = [row["name"] for row in await desk.rows(TABLES)]
        left = {name for name in tables if await desk.value(f"select count(*) from {name}")}

    section = PAGE.partition("## What deletion leaves")[2]
    said = {
        name
        for cell in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    }
    not_here = {"delivery_attempts": "nothing was sent", "mailbox": "no browser took part"}
    assert left | not_here.keys() == said
