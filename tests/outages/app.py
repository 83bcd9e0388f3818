"""The app that `parley serve` runs here: one bound agent that echoes, on a lab channel whose peer keeps a file."""

import os
from pathlib import Path

from tests.delivery.crashing_sender import FileLedger
from tests.support.events import KEYS
from workers.agents.agent import Agent, Subscription
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations

LEDGER = "OUTAGES_LEDGER"


async def echo(turn: Turn) -> None:
    """Replies with the beginning of what was said."""
    await turn.reply(turn.event.text.split()[0])


async def allow(access: Access) -> Allow:
    return Allow()


app = App(
    "outages",
    agents=[Agent("echo", runs=echo, conversation=True, subscriptions=[Subscription("lab")])],
    channels=[LabChannel(keys=KEYS, ledger=FileLedger(Path(os.environ.get(LEDGER, os.devnull))))],
    conversations=Conversations(authorize=allow),
)
