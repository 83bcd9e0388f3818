"""Three workers, connections cut and commits unheard at random: each event is answered once and in order."""

import asyncio
import random
from collections import defaultdict
from contextlib import AsyncExitStack
from datetime import timedelta

import psycopg
import pytest

from tests.support.desk import a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.agents.turn import Turn

CHATS, EVENTS = 30, 6
CUT = (
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
    " and application_name = 'parley' and random() < 0.3"
)


class Unlucky:
    """Given as `reached`: now and then the answer to a commit, or the connection before it, is lost."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.on = True
        self.struck = 0

    def __call__(self, point: str) -> None:
        if self.on and self._random.random() < 0.3:
            self.struck += 1
            raise ConnectionResetError(point)


@pytest.mark.rule("EN-14", "EN-16", "EN-24")
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_event_is_answered_once_and_in_order(database_url: str, seed: int) -> None:
    seen: defaultdict[str, list[str]] = defaultdict(list)

    async def runs(turn: Turn) -> None:
        if (turn.event.chat, turn.event.text) not in first_seen:
            first_seen.add((turn.event.chat, turn.event.text))
            seen[turn.event.chat].append(turn.event.text)
        await turn.reply(f"{turn.event.chat}: {turn.event.text}")

    first_seen: set[tuple[str, str]] = set()
    agent = an_agent(runs=runs, conversation=True)
    unlucky = Unlucky(seed)
    async with AsyncExitStack() as stack:
        desks = [
            await stack.enter_async_context(
                a_desk(database_url, agent, reached=unlucky, recall_wait=timedelta(0), pool_size=4)
            )
            for _ in range(3)
        ]
        for n in range(EVENTS):
            await desks[0].admit("echo", *(an_event(chat=f"c{chat}", text=f"{n}") for chat in range(CHATS)))
        for desk in desks:
            await stack.enter_async_context(desk.running())
        with psycopg.connect(database_url, autocommit=True) as saboteur:
            for _ in range(10):
                saboteur.execute(CUT)
                await asyncio.sleep(0.1)

        async def all_done() -> bool:
            with psycopg.connect(database_url) as connection:
                row = connection.execute("select count(*) from runs where finished_at is null").fetchone()
            return row == (0,)

        await eventually("everything has ended", all_done, timedelta(seconds=90))
        unlucky.on = False
        desk = desks[0]

        assert await desk.statuses() == {"succeeded": CHATS * EVENTS}
        assert seen == {f"c{chat}": [f"{n}" for n in range(EVENTS)] for chat in range(CHATS)}
        assert sorted(await desk.replies()) == sorted(
            f"c{chat}: {n}" for chat in range(CHATS) for n in range(EVENTS)
        )
        in_order = await desk.value(
            "select bool_and(ordered) from (select d.position > lag(d.position) over (partition by r.lane_id"
            " order by r.position) as ordered from runs r join deliveries d on d.run_id = r.id) pairs"
            " where ordered is not null"
        )
        assert in_order
        assert await desk.value("select count(*) from turns") == 0
        assert await desk.value("select count(*) from lanes where owner_run is not null") == 0
        assert await desk.value("select max(attempts + crashes + retries) from runs") == 0
        assert unlucky.struck > 3
