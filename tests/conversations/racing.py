"""A conversation with a past, for what happens to it while it is reset or deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from schemas.event import Event
from tests.support.desk import Desk, a_desk, allow
from tests.support.events import an_agent, an_event
from workers.agents.turn import Turn
from workers.memory.limits import Conversations, Limits
from workers.operations.conversations import Renewed, delete, reset
from workers.operations.deliveries import mark_sent
from workers.postgres.database import Database
from workers.turns.claim import Claimed, Claims
from workers.turns.policy import Caps

Act = Callable[[Database, int, str], Coroutine[Any, Any, Renewed]]
LEASE = timedelta(seconds=2)
DEFAULT = Limits()
either = pytest.mark.parametrize("act", [reset, delete])


async def answers(turn: Turn) -> None:
    """Notes what was said, and repeats it."""
    await turn.set_note("said", turn.event.text)
    await turn.reply(f"re: {turn.event.text}")


HELPER = an_agent("helper", runs=answers, conversation=True)


def says(text: str) -> Event:
    """The next event of the one conversation."""
    return an_event(chat="room", text=text, event_id=text)


@asynccontextmanager
async def a_conversation(url: str, **changes: Any) -> AsyncIterator[tuple[Desk, int]]:
    """A desk and the lane of a conversation in which `first` was answered and the answer was sent."""
    async with a_desk(url, HELPER, **changes) as desk:
        [run_id] = await desk.admit("helper", says("first"))
        await desk.work()
        await all_sent(desk)
        yield desk, (await desk.lane_of(run_id))["id"]


async def all_sent(desk: Desk) -> None:
    """Every reply arrived."""
    for row in await desk.rows("select id from deliveries where finished_at is null"):
        await desk.database.execute("update deliveries set state = 'unknown' where id = $1", row["id"])
        await mark_sent(desk.database, row["id"], "test")


async def claim(desk: Desk, limits: Limits = DEFAULT) -> list[Claimed]:
    """What a worker gets that looks for the first time; one that has walked a slow queue may rest for a moment."""
    claims = Claims(desk.database, desk.agents, Conversations(allow, limits), Caps())
    return list((await claims.claim(desk.session.id, [])).turns)


async def claim_one(desk: Desk) -> Claimed:
    [turn] = await claim(desk)
    return turn


async def claim_none(desk: Desk) -> None:
    assert await claim(desk) == []


async def kept(desk: Desk) -> dict[str, list[str]]:
    """What of the conversation's texts is found anywhere in its records."""
    return {
        "items": [row["body"] for row in await desk.rows("select body from items order by id")],
        "notes": [row["body"] for row in await desk.rows("select body from notes order by key")],
        "operations": [row["key"] for row in await desk.rows("select key from note_operations")],
        "snapshots": [row["snapshot"].decode() for row in await desk.rows("select snapshot from turns")],
    }


NOTHING: dict[str, list[str]] = {"items": [], "notes": [], "operations": [], "snapshots": []}


async def generation(desk: Desk, lane_id: int) -> int:
    return int(await desk.value("select generation from lanes where id = $1", lane_id))


async def history_of_next(desk: Desk) -> list[tuple[str, str]]:
    """What a new turn is shown; it stays claimed."""
    await desk.admit("helper", says("next"))
    turn = await claim_one(desk)
    assert turn.snapshot is not None
    assert turn.snapshot.omitted_items == 0
    return [(each.role, each.text) for each in turn.snapshot.history]
