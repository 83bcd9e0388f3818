"""The demo's worker process: a whole worker with the scripted helper, and the place where it waits for its death.

On its output it writes one JSON line when it serves and one when it stands still. It ends when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel

from workers.agents.agent import Agent, Subscription
from workers.agents.scripted import scripted_helper
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.webhook import WebhookChannel
from workers.embedded.demo.faults import break_part
from workers.embedded.demo.plan import AGENT, CHANNEL, LEASE_SECONDS, Plan
from workers.kafka.settings import KafkaSettings
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.roles.settings import Settings
from workers.roles.worker import Worker
from workers.telemetry.logging import configure

_UNTIL_KILLED_SECONDS = 60


class AskedModel(WrapperModel):
    """Notes each request that really reaches the model; what comes from the journal does not."""

    def __init__(self, wrapped: Model, log: Path) -> None:
        super().__init__(wrapped)
        self._log = log

    async def request(self, *arguments: Any, **named: Any) -> Any:
        with self._log.open("a", encoding="utf-8") as log:
            log.write("asked\n")
        return await super().request(*arguments, **named)


async def everyone_owns_their_chat(access: Access) -> Allow:
    """The demo's policy: the platform proved who speaks, and a direct chat has one person."""
    return Allow()


def demo_app(plan: Plan) -> App:
    """The scripted helper behind one webhook channel."""
    helper = scripted_helper()
    assert isinstance(helper.model, Model)
    helper.model = AskedModel(helper.model, Path(plan.asked_log))
    agent = Agent(AGENT, runs=helper, conversation=True, subscriptions=[Subscription(CHANNEL)])
    return App(
        "demo",
        agents=[agent],
        channels=[WebhookChannel(CHANNEL, plan.replies_to, StaticKeys((plan.key,)))],
        conversations=Conversations(authorize=everyone_owns_their_chat),
    )


def main() -> None:
    """Run one life of the worker."""
    plan = Plan.read(os.environ)
    configure("INFO", json=False)
    if plan.fault is not None:
        break_part(plan.fault)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_live(plan))


async def _live(plan: Plan) -> None:
    settings = Settings(
        database_url=plan.database_url,
        kafka=KafkaSettings.embedded(plan.bootstrap),
        lease_for=timedelta(seconds=LEASE_SECONDS),
        grace=timedelta(seconds=2),
        http_port=0,
    )
    worker = Worker(demo_app(plan), settings, reached=_Holding(plan.dies_after))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), lambda: ended.set() if not os.read(0, 1024) else None)
    await worker.start()
    _say(serving=worker.http_port)
    stopping = asyncio.create_task(_drain_when(ended, worker), name="end of input")
    await worker.run_until_stopped()
    stopping.cancel()


async def _drain_when(ended: asyncio.Event, worker: Worker) -> None:
    await ended.wait()
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    await worker.drain()


class _Holding:
    """Holds the whole process still right after the given journal commit; the demo then kills it."""

    def __init__(self, dies_after: int | None) -> None:
        self._left = dies_after

    def __call__(self, point: str) -> None:
        if point != "journal.committed" or self._left is None:
            return
        self._left -= 1
        if self._left == 0:
            _say(standing_still=True)
            time.sleep(_UNTIL_KILLED_SECONDS)


def _say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
