"""An app in which everything that goes wrong says a secret; it is made from its Life."""

from tests.support.events import KEYS, a_key
from tests.support.worker_process import Life, ledger_of
from tests.worker.apps import LISTENS
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.lab import LabChannel
from workers.channels.webhook import WebhookChannel


def leaking(life: Life) -> App:
    """`crash` raises with secrets in its text, else a reply goes to a provider that knows no token."""
    password, token = life.options["password"], life.options["token"]

    async def runs(turn: Turn) -> None:
        if turn.event.text == "crash":
            raise RuntimeError(f"no connection to postgresql://app:{password}@db.example/app, bearer {token}")
        await turn.emit("hook", "a", turn.event.text)
        await turn.reply(turn.event.text)

    hook = WebhookChannel("hook", life.options["url"], StaticKeys((a_key(life.options["key"]),)))
    agent = Agent("echo", runs=runs, subscriptions=LISTENS)
    return App("leaking", agents=[agent], channels=[LabChannel(keys=KEYS, ledger=ledger_of(life)), hook])
