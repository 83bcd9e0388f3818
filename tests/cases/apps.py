"""One agent that does what the text of an event asks for; it notes each time that it is called."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

from tests.support.waiting import eventually
from tests.support.worker_process import Life
from tests.worker.apps import LISTENS, an_app
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.app import App


def scripted(life: Life) -> App:
    """`fail N` fails N times and may be tried again, `die` kills the process, `block` waits for the file `go`."""

    async def runs(turn: Turn) -> None:
        text = turn.event.text
        life.note(text)
        word, _, count = text.partition(" ")
        if word == "fail" and life.noted().count(text) <= int(count):
            raise ConnectionError("asked to fail")
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "block":
            await eventually("it may go on", (Path(life.folder) / "go").exists, timedelta(minutes=1))
        await turn.reply(f"answer to {text}")

    return an_app(life, Agent("scripted", runs=runs, conversation=True, subscriptions=LISTENS, retries=2))
