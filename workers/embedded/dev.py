"""`parley dev`: one worker on embedded services, with a browser chat, for development only.

Postgres keeps its data in the directory, and with it conversations and notes; the broker keeps records in memory, so
what was sent and not yet taken at the stop is lost.
"""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import structlog

from schemas.errors import Misconfigured
from schemas.signing import SigningKey
from workers.agents.agent import Agent, Subscription
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.web import WebChannel
from workers.embedded.services import STATE_FILE, Running
from workers.embedded.settings import embedded_settings
from workers.memory.access import Access, Allow
from workers.memory.limits import Conversations
from workers.roles.settings import Settings
from workers.roles.worker import Worker

_SECRET_FILE: Final = "dev.secret"
_LOUD: Final = (
    *("aiokafka", "faust", "mode", "kafka", "alembic", "uvicorn"),
    *("workers.kafka.client_thread", "workers.kafka.faust_app"),
)
_INSTRUCTIONS: Final = (
    "You help people in a chat. Send every answer with the reply tool. Save notes only when you are asked to."
)

log = structlog.get_logger(__name__)


class DataInUse(Misconfigured):
    """Other services run over this directory."""

    def __init__(self, data: Path, pid: int) -> None:
        super().__init__(f"{data} is in use by process {pid}: stop it, or give another --data")
        self.data, self.pid = data, pid


class ModelNotUsable(Misconfigured):
    """The model cannot be built: a missing package or key."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"model {model} cannot be used: {reason}")
        self.model = model


class DevWorker(Worker):
    """Tells `serving` its port and its database's URL once it listens."""

    def __init__(self, app: App, settings: Settings, serving: Callable[[int, str], None]) -> None:
        super().__init__(app, settings)
        self._serving = serving

    async def start(self) -> None:
        """As a worker does. Raises AddressTaken."""
        await super().start()
        assert self.http_port is not None
        self._serving(self.http_port, self.settings.database_url)


def helper_app(data: Path, model: str | None) -> App:
    """The browser chat with a helper that needs no key, or with `model`, a pydantic-ai model name.

    Raises ModelNotUsable.
    """
    secret = _secret(data)
    key = SigningKey.parse("dev", f"whsec_{base64.b64encode(secret.encode()[:32]).decode()}")
    web = WebChannel(secret=secret, keys=StaticKeys((key,)))
    agent = Agent("helper", runs=_runs(model), conversation=True, subscriptions=[Subscription(web.name)])
    return App(
        "helper",
        agents=[agent],
        channels=[web],
        conversations=Conversations(authorize=visitors_own_their_chat),
    )


async def visitors_own_their_chat(access: Access) -> Allow:
    """The page's signed cookie says whose chat it is, and nobody else can name it."""
    return Allow()


@asynccontextmanager
async def dev_worker(
    app: App, data: Path, port: int, serving: Callable[[int, str], None]
) -> AsyncIterator[DevWorker]:
    """A worker, not yet started, over migrated services in `data`. Raises DataInUse, EmbeddedNotInstalled."""
    _refuse_if_used(data)
    log.warning(
        "dev.database_is_embedded",
        data=str(data),
        advice="history and notes are lost with this directory, and replicas do not share them; deployments set "
        "PARLEY_DATABASE_URL",
    )
    async with embedded_settings(data, http_port=port) as settings:
        yield DevWorker(app, settings, serving)


def quieten_libraries() -> None:
    """Leave the console to what the engine does; libraries say warnings and worse."""
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)


def _runs(model: str | None) -> Any:
    if model is None:
        from workers.agents.scripted import scripted_helper

        return scripted_helper()
    from pydantic_ai import Agent as ModelAgent
    from pydantic_ai.exceptions import UserError

    from workers.agents.tools import memory_tools, reply_tools
    from workers.agents.turn import Turn

    try:
        return ModelAgent(
            model, deps_type=Turn, instructions=_INSTRUCTIONS, toolsets=[reply_tools(), memory_tools()]
        )
    except (ImportError, UserError, ValueError) as error:
        raise ModelNotUsable(model, str(error).splitlines()[0]) from error
    except Exception as error:  # each provider's client has its own error for a missing key
        raise ModelNotUsable(model, f"{type(error).__name__}: {str(error).splitlines()[0]}") from error


def _secret(data: Path) -> str:
    """Kept beside the data, so that a visitor's chat is theirs after a restart."""
    path = data / _SECRET_FILE
    if not path.exists():
        data.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32), encoding="utf-8")
    return path.read_text(encoding="utf-8")


def _refuse_if_used(data: Path) -> None:
    try:
        running = Running.read((data / STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return
    if Path(f"/proc/{running.pid}").exists():
        raise DataInUse(data, running.pid)
