"""Agents that say again exactly what they were told."""

import asyncio

from tests.support.worker_process import Life
from tests.worker.apps import LISTENS, an_app
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.app import App


def saying(life: Life) -> App:
    async def runs(turn: Turn) -> None:
        await turn.reply(turn.event.text)

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))


def slowly(life: Life) -> App:
    """As `saying`; a turn of the chat `h` takes as many seconds as the options say."""

    async def runs(turn: Turn) -> None:
        if turn.event.chat == "h":
            await turn.step("wait", asyncio.sleep, life.options["seconds"])
        await turn.reply(turn.event.text)

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))
