"""Apps of workers that cannot go on: each is made from its Life."""

import time

from tests.support.worker_process import Life
from tests.worker.apps import LISTENS, an_app
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.app import App
from workers.intake.service import Intake


def blocking(life: Life) -> App:
    """A turn that lets nothing else of its process run."""

    async def runs(turn: Turn) -> None:
        life.note("blocks")
        time.sleep(60)  # noqa: ASYNC251  # it is to block

    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))


def denying_the_consumer(life: Life) -> App:
    """What keeps intake going fails for good, as by a defect of ours."""

    async def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    async def runs(turn: Turn) -> None:
        """Never called."""

    Intake.run_retries = fails  # type: ignore[method-assign,assignment]  # this process is to fail
    return an_app(life, Agent("echo", runs=runs, conversation=True, subscriptions=LISTENS))
