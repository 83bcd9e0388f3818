"""The browser chat: what a visitor types becomes a signed event, a reply waits in a mailbox for the page.

Who a visitor is, is what the page's signed cookie says; there is no other login. A mailbox keeps a reply once
for its key, so a send may be repeated at any time.
"""

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from schemas.errors import Misconfigured
from schemas.event import Event
from schemas.identity import DIRECT, Principal
from schemas.text import clean
from workers.channels.mailbox import Direction, MailboxStore
from workers.channels.port import (
    Capability,
    KeySource,
    LookUp,
    NotSent,
    Outcome,
    Outgoing,
    Refused,
    Sent,
    SizeUnit,
    Uncertain,
    Unsure,
)
from workers.channels.splitting import split_text
from workers.postgres.database import Database
from workers.postgres.failures import is_data_error
from workers.postgres.hints import Hints

ACCOUNT: Final = "browser"
HINT: Final = "mailbox"
MAX_TEXT_BYTES: Final = 32 * 1024
MIN_SECRET_BYTES: Final = 16

_CHAT = re.compile(r"[0-9a-f]{32}")


class WeakSecret(Misconfigured):
    """The secret that signs the visitors' cookies is too short."""

    def __init__(self, channel: str) -> None:
        super().__init__(f"channel {channel!r}: a cookie secret has at least {MIN_SECRET_BYTES} bytes")
        self.channel = channel


class WebChannel:
    """`secret` signs cookies; `earlier_secrets` still prove those made before a rotation.

    `origins` are addresses of the page that the Host header does not say (a proxy that rewrites it); `https`
    marks cookies Secure behind a proxy that ends TLS.
    """

    def __init__(
        self,
        name: str = "web",
        *,
        secret: str,
        keys: KeySource | None,
        earlier_secrets: Sequence[str] = (),
        origins: Sequence[str] = (),
        https: bool = False,
    ) -> None:
        self.secrets = tuple(each.encode() for each in (secret, *earlier_secrets))
        if min(map(len, self.secrets)) < MIN_SECRET_BYTES:
            raise WeakSecret(name)
        self.name = name
        self.keys = keys
        self.origins = frozenset(origins)
        self.https = https
        self.mailbox = MailboxStore(name, ACCOUNT)
        self.capability = Capability.IDEMPOTENT
        self.window: timedelta | None = None
        self.settling_time = timedelta(0)
        self.transport_timeout = timedelta(seconds=5)
        self.size_limit = MAX_TEXT_BYTES
        self.size_unit: SizeUnit = "utf8"
        self._database: Database | None = None
        self._hints: Hints | None = None

    def bind(self, database: Database, hints: Hints) -> None:
        """Where mailboxes are kept, and who wakes their readers; called when the worker is composed."""
        self._database, self._hints = database, hints

    def message(self, chat: str, principal: str, message: str, text: str, now: datetime) -> Event:
        """The event of what a visitor typed; `message` is its id within the chat. Raises ValidationError."""
        return Event(
            event_id=f"{chat}:{message}",
            channel=self.name,
            account=ACCOUNT,
            chat=chat,
            audience=DIRECT,
            kind="message",
            principal=Principal(principal),
            text=text,
            occurred_at=now,
        )

    async def clock(self) -> datetime:
        """Database time, to order what the visitor says with the replies to it; raises as asyncpg does."""
        assert self._database is not None
        async with self._database.acquire() as connection:
            return await self.mailbox.clock(connection)

    async def keep_own(self, event: Event, said_at: datetime | None) -> None:
        """Keep what the visitor said beside the replies, so that a reload shows both; raises as asyncpg does.

        `said_at` comes from `clock()` before the event was published: a quick reply may be here already.
        """
        await self._keep(event.chat, f"in:{self.name}:{event.event_id}", "in", event.text, said_at)

    def resends_unknown(self, account: str) -> bool:
        return False

    def split(self, text: str) -> tuple[str, ...]:
        return split_text(text, self.size_limit, self.size_unit)

    async def open(self) -> None:
        """Nothing to open: the database is bound."""

    async def close(self) -> None:
        """Nothing to close: the database is the worker's."""

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        if outgoing.account != ACCOUNT or not _CHAT.fullmatch(outgoing.address):
            return Refused("no such chat")
        if self._database is None:
            return NotSent("mailbox not open", scope="channel")
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._keep(outgoing.address, outgoing.key, "out", outgoing.text)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            return Refused("not storable") if is_data_error(error) else Uncertain(type(error).__name__)
        return Sent()

    async def look_up(self, outgoing: Outgoing, timeout: timedelta) -> LookUp:
        return Unsure("send again instead")

    async def _keep(
        self, chat: str, key: str, direction: Direction, body: str, said_at: datetime | None = None
    ) -> None:
        assert self._database is not None
        async with self._database.transaction() as tx:
            await self.mailbox.add(tx, chat, key, direction, clean(body), said_at)
        if self._hints is not None:
            self._hints.hint(HINT)
