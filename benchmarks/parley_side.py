"""One whole worker as it is shipped: default settings, roles intake, turns and delivery, an agent that answers.

Run as a child process: `python -m benchmarks.parley_side DATABASE BOOTSTRAP RECEIVER ROLES ORDERS [COUNT]`; the file
COUNT counts statements.
"""

import asyncio
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.counting import Count, counted_pool
from benchmarks.processes import say
from schemas.signing import SigningKey
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.webhook import WebhookChannel
from workers.kafka.settings import KafkaSettings
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.roles.process import settle_garbage_collector
from workers.roles.settings import ROLES, Settings
from workers.roles.worker import Worker
from workers.telemetry.logging import configure
from workers.turns.policy import DEFAULT_SLOTS

CHANNEL: Final = "webhook"
KEY: Final = SigningKey.parse("bench", "whsec_" + "YmVuY2htYXJr" * 3)


@dataclass(frozen=True, slots=True)
class Orders:
    """What differs from the defaults: how long the agent takes before it answers, and how many run at once."""

    agent_seconds: float = 0.0
    slots: int = DEFAULT_SLOTS

    @property
    def written(self) -> str:
        """The argument of the child process."""
        return json.dumps(asdict(self))


async def allow(access: Access) -> Allow:
    """The policy: everyone may."""
    return Allow()


def build_app(receiver: str, orders: Orders) -> App:
    """The agent, one reply with the text that came, bound to conversation memory, behind a webhook to `receiver`."""

    async def echo(turn: Turn) -> None:
        if orders.agent_seconds:
            await asyncio.sleep(orders.agent_seconds)
        await turn.reply(turn.event.text)

    return App(
        "benchmark",
        agents=[Agent("echo", runs=echo, conversation=True, subscriptions=[Subscription(CHANNEL)])],
        channels=[WebhookChannel(CHANNEL, receiver, StaticKeys((KEY,)))],
        conversations=Conversations(authorize=allow),
    )


def kafka_settings(bootstrap: str) -> KafkaSettings:
    """The defaults, for one broker."""
    return KafkaSettings(bootstrap=bootstrap, replication=1)


async def serve(
    database: str, bootstrap: str, receiver: str, roles: str, written: str, count: str = ""
) -> None:
    """Start, say when, run until SIGTERM, drain."""
    orders = Orders(**json.loads(written))
    settings = Settings(
        database_url=database,
        kafka=kafka_settings(bootstrap),
        roles=frozenset(role for role in ROLES if role in roles.split(",")),
        slots=orders.slots,
        http_port=0,
    )
    pool = await counted_pool(settings, Count(Path(count))) if count else None
    worker = Worker(build_app(receiver, orders), settings, database=pool)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    say(started=time.monotonic_ns())
    await worker.start()
    settle_garbage_collector()
    ended = asyncio.ensure_future(worker.run_until_stopped())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await worker.drain()
    stopping.cancel()
    await ended
    if pool is not None:
        await pool.close()


if __name__ == "__main__":
    configure(final=True)
    uvloop.run(serve(*sys.argv[1:7]))
