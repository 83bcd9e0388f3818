"""One whole worker as it is shipped: default settings, roles intake, turns and delivery, an agent that answers.

Run as a child process: `python -m benchmarks.parley_side DATABASE BOOTSTRAP RECEIVER`.
"""

import asyncio
import signal
import sys
import time
from typing import Final

import uvloop

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
from workers.roles.settings import Settings
from workers.roles.worker import Worker
from workers.telemetry.logging import configure

CHANNEL: Final = "webhook"
KEY: Final = SigningKey.parse("bench", "whsec_" + "YmVuY2htYXJr" * 3)


async def echo(turn: Turn) -> None:
    """The agent: one reply, the text that came."""
    await turn.reply(turn.event.text)


async def allow(access: Access) -> Allow:
    """The policy: everyone may."""
    return Allow()


def build_app(receiver: str) -> App:
    """The agent, bound to conversation memory, behind a webhook to `receiver`."""
    return App(
        "benchmark",
        agents=[Agent("echo", runs=echo, conversation=True, subscriptions=[Subscription(CHANNEL)])],
        channels=[WebhookChannel(CHANNEL, receiver, StaticKeys((KEY,)))],
        conversations=Conversations(authorize=allow),
    )


def kafka_settings(bootstrap: str) -> KafkaSettings:
    """The defaults, for one broker."""
    return KafkaSettings(bootstrap=bootstrap, replication=1)


async def serve(database: str, bootstrap: str, receiver: str) -> None:
    """Start, say when, run until SIGTERM, drain."""
    settings = Settings(
        database_url=database,
        kafka=kafka_settings(bootstrap),
        roles=frozenset({"intake", "turns", "delivery"}),
        http_port=0,
    )
    worker = Worker(build_app(receiver), settings)
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


if __name__ == "__main__":
    configure(final=True)
    uvloop.run(serve(*sys.argv[1:4]))
