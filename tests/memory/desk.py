"""Lanes, conversations and items in a real database, as the engine leaves them, and a clock that can be moved."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from uuid import UUID

from schemas.run import new_uuid7
from workers.memory.notes import Notes, NoteScope
from workers.postgres.database import Database


@dataclass(slots=True)
class MemoryDesk:
    db: Database
    notes: Notes

    async def a_lane(self, *, epoch: int = 1) -> NoteScope:
        """A conversation owned by a run."""
        run_id = new_uuid7()
        lane_id = await self.db.fetchrow(
            "insert into lanes (key, kind, epoch, owner_run) values ($1, 'conversation', $2, $3) returning id",
            f"lane {next(_numbers)}".encode(),
            epoch,
            run_id,
        )
        assert lane_id is not None
        await self.db.execute(
            "insert into conversations (lane_id, memory_key, channel, account, chat, audience)"
            " values ($1, 'helper', 'web', 'main', $2, 'direct')",
            lane_id["id"],
            f"chat {lane_id['id']}",
        )
        return NoteScope(lane_id["id"], 0, epoch, run_id)

    async def an_item(
        self,
        lane_id: int,
        body: str | None,
        *,
        kind: str = "input",
        status: str = "accepted",
        run_id: UUID | None = None,
    ) -> str:
        """An item in generation 0; returns its event id or reply key."""
        name = f"item-{next(_numbers)}"
        await self.db.execute(
            "insert into items (lane_id, generation, kind, status, run_id, event_id, reply_key, body, body_bytes,"
            " created_at) values ($1, 0, $2, $3, $4, $5, $6, $7, $8, parley_now())",
            lane_id,
            kind,
            status,
            run_id or new_uuid7(),
            name if kind == "input" else None,
            name if kind == "reply" else None,
            body,
            len((body or "").encode()),
        )
        return name

    async def move_clock(self, by: timedelta) -> None:
        """From now on `parley_now()` runs `by` ahead."""
        await self.db.execute(
            "create or replace function parley_now() returns timestamptz language sql stable parallel safe as"
            f" $$select now() + interval '{by.total_seconds()} seconds'$$"
        )

    async def count(self, table: str) -> int:
        """Rows of a table."""
        row = await self.db.fetchrow(f"select count(*) from {table}")
        assert row is not None
        return int(row[0])


@asynccontextmanager
async def a_desk(database_url: str) -> AsyncIterator[MemoryDesk]:
    """A desk on the test's own database."""
    db = await Database.open(database_url, max_size=4)
    try:
        yield MemoryDesk(db, Notes(db))
    finally:
        await db.close()


_numbers = count(1)
