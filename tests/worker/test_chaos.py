"""Workers that are killed and stopped at random for a while lose, repeat and reorder nothing."""

import asyncio
import random
import signal
from datetime import timedelta

import pytest

from tests.support.events import an_event
from tests.support.running import Child, Site
from tests.worker.conftest import MakeSite

CHATS, EVENTS_A_CHAT = 8, 12


@pytest.mark.long
@pytest.mark.rule("EN-35", "EN-13", "EN-16")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_random_kills_and_stops_lose_repeat_and_reorder_nothing(make_site: MakeSite, seed: int) -> None:
    chance = random.Random(seed)
    async with make_site(app="tests.worker.apps:counting", lease_seconds=1.5) as site:
        children = [site.start() for _ in range(3)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_publish(site, chance))
            for _ in range(12):
                await asyncio.sleep(chance.uniform(0.5, 2.5))
                await _strike(site, children, chance)
        for child in children:
            child.signal(signal.SIGCONT)

        await site.settled(CHATS * EVENTS_A_CHAT, within=timedelta(seconds=120))

        for chat in range(CHATS):
            texts = [message.text for message in site.received() if message.address == f"c{chat}"]
            assert texts == [f"{n}: m{chat}-{n}" for n in range(EVENTS_A_CHAT)]
        keys = [message.key for message in site.received()]
        assert len(set(keys)) == len(keys)
        assert await site.value("select count(*) from runs where status <> 'succeeded'") == 0
        assert await site.value("select count(*) from lanes where owner_run is not null") == 0


async def _publish(site: Site, chance: random.Random) -> None:
    for number in range(EVENTS_A_CHAT):
        for chat in chance.sample(range(CHATS), CHATS):
            event = an_event(event_id=f"e{chat}-{number}", chat=f"c{chat}", text=f"m{chat}-{number}")
            await site.publish(*[event] * chance.choice([1, 1, 3]))
            await asyncio.sleep(chance.uniform(0, 0.3))


async def _strike(site: Site, children: list[Child], chance: random.Random) -> None:
    victim = chance.choice(children)
    if chance.random() < 0.5:
        children.remove(victim)
        children.append(site.start())
        await victim.kill()
    else:
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(0.5, 4))
        victim.signal(signal.SIGCONT)
