"""The app that served replicas run, in whatever folder they stand: what it notes and sends is kept there."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from tests.delivery.crashing_sender import FileLedger
from tests.support.events import KEYS, an_agent
from tests.support.waiting import eventually
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel

FOLDER = Path.cwd()
NOTES = FOLDER / "notes"


def note(word: str) -> None:
    """Append a line to what all replicas of the folder noted, in one write."""
    with NOTES.open("ab") as notes:
        notes.write(word.encode() + b"\n")


async def runs(turn: Turn) -> None:
    """`short N` ends when there is a file `draining`, `long N` when there is one `go`, `deaf` never ends."""
    name = os.environ.get("REPLICA", "")
    note(f"{name} began {turn.event.text}")
    word = turn.event.text.split()[0]
    if word == "short":
        await eventually("it may end", (FOLDER / "draining").exists, timedelta(minutes=2))
    if word == "long":
        await eventually("it may end", (FOLDER / "go").exists, timedelta(minutes=2))
    while word == "deaf":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await turn.reply(turn.event.text)
    note(f"{name} ended {turn.event.text}")


app = App(
    "served",
    agents=[an_agent(runs=runs)],
    channels=[
        LabChannel(keys=KEYS, ledger=FileLedger(FOLDER / "ledger"), transport_timeout=timedelta(seconds=1))
    ],
)
