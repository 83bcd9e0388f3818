"""An agent that says again exactly what it was told."""

from tests.support.worker_process import Life
from tests.worker.apps import LISTENS, an_app
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.app import App


def saying(life: Life) -> App:
    async def runs(turn: Turn) -> None:
        await turn.reply(turn.event.text)

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))
