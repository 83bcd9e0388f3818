"""`python -m benchmarks.prune`: what turns feel of a sweep over transcripts that have had their time; one JSON line.

No broker: events are admitted at a steady rate to conversations of the same database, and each turn edits a note. The
sweep is the sweeper role's, with its batches and its rests, in the same process and on the same pool.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

from benchmarks.growth import a_server, allow
from benchmarks.services import filled
from schemas.event import Event, decode_event
from schemas.identity import Principal
from schemas.run import new_uuid7
from workers.admission.service import Admission
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.intake.policy import candidate
from workers.memory.limits import Conversations, Limits
from workers.operations.retention import Retention
from workers.operations.sweeper import REST, Sweeper
from workers.postgres.database import Database
from workers.postgres.hints import Wake
from workers.telemetry.logging import configure
from workers.telemetry.metrics import Metrics
from workers.turns.claim import Claims
from workers.turns.execution import Execution
from workers.turns.journal import StepJournal
from workers.turns.loop import TurnLoop
from workers.turns.policy import Caps
from workers.turns.session import WorkerSession
from workers.turns.settle import Settlement, Settlements

TICK_SECONDS: Final = 0.05
CHATS: Final = 2_000
ITEMS_EACH: Final = 100
WORST_RATIO: Final = 2.0
WARM_UP_SECONDS: Final = 5.0

FILL: Final[LiteralString] = """
insert into lanes (key, kind, next_position)
select sha256(('filled' || n)::bytea), 'conversation', 2 from generate_series(1, %(conversations)s) n;
insert into conversations (lane_id, memory_key, channel, account, chat, audience)
select id, 'noter', 'lab', 'account', 'filled-' || id, 'direct' from lanes;
insert into items (lane_id, generation, kind, status, run_id, event_id, body, body_bytes, created_at)
select lane_id, 0, 'input', 'accepted', gen_random_uuid(), 'past-' || n, repeat('x', 80), 80, now() - interval '31 days'
  from conversations, generate_series(1, %(each)s) n;
"""


class Watched(Settlements):
    """Settlements that say when a run's own has been committed."""

    def __init__(self, database: Database, settled: Callable[[UUID], None]) -> None:
        super().__init__(database)
        self._settled = settled

    async def settle(self, settlement: Settlement) -> None:
        await super().settle(settlement)
        self._settled(settlement.turn.own.run_id)


@dataclass(slots=True)
class Load:
    """Turns at a steady rate; `latencies` are milliseconds from an event's moment to the commit of its settlement."""

    admission: Admission
    agent: Agent
    wake: Wake
    per_second: int
    latencies: list[float] = field(default_factory=list)
    begun: dict[UUID, float] = field(default_factory=dict)
    count: int = 0
    dice: random.Random = field(default_factory=lambda: random.Random(5))

    def settled(self, run_id: UUID) -> None:
        self.latencies.append((time.monotonic() - self.begun.pop(run_id)) * 1000)

    def taken(self) -> list[float]:
        """The latencies since the last time."""
        taken, self.latencies = self.latencies, []
        return taken

    async def run(self) -> None:
        """Until cancelled; an event that is late is counted from when it should have come."""
        started, tick, owed = time.monotonic(), 0, 0.0
        async with asyncio.TaskGroup() as admitting:
            while True:
                tick += 1
                due = started + tick * TICK_SECONDS
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                owed += self.per_second * TICK_SECONDS
                events = [self._event() for _ in range(int(owed))]
                owed -= len(events)
                admitting.create_task(self._admit(events, due))

    async def _admit(self, events: list[Event], due: float) -> None:
        asked = [candidate(self.agent, event, new_uuid7(), None) for event in events]
        self.begun.update((each.run_id, due) for each in asked)
        await self.admission.admit(asked)
        self.wake.set()

    def _event(self) -> Event:
        self.count += 1
        return decode_event(
            Event(
                event_id=f"event-{self.count}",
                channel="lab",
                account="account",
                chat=f"chat-{self.dice.randrange(CHATS)}",
                audience="direct",
                kind="message",
                principal=Principal("u"),
                text=f"note {self.count}",
                occurred_at=datetime.now(UTC),
            ).encode()
        )


async def notes(turn: Turn) -> None:
    """Keeps what was said as a note."""
    await turn.set_note("last", turn.event.text, timedelta(days=1))


@asynccontextmanager
async def a_load(url: str, database: Database, per_second: int) -> AsyncIterator[Load]:
    """One worker's turns under way, as the turns role puts them together."""
    agent = Agent("noter", runs=notes, conversation=True, subscriptions=[Subscription("lab")])
    agents, conversations, wake = {"noter": agent}, Conversations(allow), Wake()
    session = WorkerSession(url)
    await session.start()
    load = Load(Admission(database), agent, wake, per_second)
    journal, settlements = StepJournal(database, lambda rows: None), Watched(database, load.settled)
    loop = TurnLoop(
        database,
        agents,
        session,
        Claims(database, agents, conversations, Caps()),
        Execution(database, agents, conversations, journal, lambda channel, text: (text,)),
        settlements,
        wake,
        Metrics(),
    )
    running, admitting = asyncio.create_task(loop.run()), asyncio.create_task(load.run())
    try:
        yield load
    finally:
        admitting.cancel()
        await asyncio.gather(admitting, return_exceptions=True)
        await loop.drain(timedelta(seconds=10))
        await running
        await settlements.close()
        await journal.close()
        await session.stop_renewing()


async def compare(url: str, per_second: int, seconds: float, rest: float) -> dict[str, object]:
    """Latencies before, during and after one sweep of everything."""
    database = await Database.open(url)
    try:
        async with a_load(url, database, per_second) as load:
            sweeper = Sweeper(database, Retention(), limits=Limits(), rest=rest)
            await asyncio.sleep(WARM_UP_SECONDS)
            load.taken()
            await asyncio.sleep(seconds)
            before = load.taken()
            started = time.monotonic()
            removed = await sweeper.prune_memory()
            swept_for = time.monotonic() - started
            during = load.taken()
            await asyncio.sleep(seconds)
            without = before + load.taken()
    finally:
        await database.close()
    quiet, busy = _p95(without), _p95(during)
    return {
        "goal": "prune",
        "items": removed["items"],
        "receipts": removed["note_operations"],
        "prune_s": round(swept_for, 1),
        "turns_without": len(without),
        "turns_with": len(during),
        "p50_ms_without": round(statistics.median(without), 1),
        "p50_ms_with": round(statistics.median(during), 1),
        "p95_ms_without": round(quiet, 1),
        "p95_ms_with": round(busy, 1),
        "ratio": round(busy / quiet, 2),
        "met": busy / quiet <= WORST_RATIO,
    }


def _p95(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=20)[18]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prune", description=__doc__)
    parser.add_argument("--items", type=int, default=50_000, help="items to prune, in conversations of 100")
    parser.add_argument("--per-second", type=int, default=60, help="turns a second beside it")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="measured before and again after the sweep"
    )
    parser.add_argument("--rest", type=float, default=REST, help="after a batch, in times its duration")
    chosen = parser.parse_args()
    configure("WARNING", final=True)
    with a_server() as base:
        url = filled(base, FILL, conversations=chosen.items // ITEMS_EACH, each=ITEMS_EACH)
        print(json.dumps(asyncio.run(compare(url, chosen.per_second, chosen.seconds, chosen.rest))))


if __name__ == "__main__":
    main()
