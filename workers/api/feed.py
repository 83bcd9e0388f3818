"""Readers of mailboxes get new letters soon: one query a round serves every open page of this process.

A reader is a cursor in one chat. Hints make a round come at once, polling makes it come anyway; a reader that
has not taken its letters yet is not read for again, so a slow page holds one page of letters and no more.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import asyncpg
import structlog

from workers.channels.mailbox import Letter, MailboxStore
from workers.postgres.database import Database
from workers.postgres.hints import Wake

log = structlog.get_logger(__name__)

PAGE: Final = 20
MOST_READERS: Final = 1000
MOST_READERS_OF_A_CHAT: Final = 8
_RETRY_S: Final = 1.0

AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Reader:
    """One open page: `take` gives what came after the cursor."""

    def __init__(self, chat: str, cursor: int, wake: Wake) -> None:
        self.chat = chat
        self.cursor = cursor
        self._wake = wake
        self._letters: list[Letter] = []
        self._came = asyncio.Event()

    @property
    def is_hungry(self) -> bool:
        """Whether everything read for it was taken."""
        return not self._letters

    def put(self, letters: list[Letter]) -> None:
        """Give it the letters after its cursor, oldest first."""
        if letters:
            self._letters = letters
            self.cursor = letters[-1].id
            self._came.set()

    async def take(self, within: timedelta) -> list[Letter]:
        """New letters, oldest first; none when nothing came in time."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self._came.wait()
        except TimeoutError:
            return []
        self._came.clear()
        letters, self._letters = self._letters, []
        if len(letters) == PAGE:
            self._wake.set()
        return letters

    def end(self) -> None:
        """Let `take` return at once."""
        self._came.set()


class Feed:
    """`run()` is the one loop that reads; it ends when cancelled."""

    def __init__(self, database: Database, store: MailboxStore, wake: Wake, poll_every: timedelta) -> None:
        self._database = database
        self._store = store
        self._wake = wake
        self._poll_every = poll_every
        self._readers: set[Reader] = set()
        self._chats: Counter[str] = Counter()
        self._anyone = asyncio.Event()
        self.has_ended = False

    def has_room_for(self, chat: str) -> bool:
        """Whether one more page may be open, of this chat and at all."""
        return len(self._readers) < MOST_READERS and self._chats[chat] < MOST_READERS_OF_A_CHAT

    @contextmanager
    def reading(self, chat: str, cursor: int) -> Iterator[Reader]:
        """A reader of `chat` after `cursor`, served while the block lasts."""
        reader = Reader(chat, cursor, self._wake)
        self._readers.add(reader)
        self._chats[chat] += 1
        self._anyone.set()
        self._wake.set()
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            self._chats -= Counter((chat,))

    async def start_of(self, chat: str, newest: int) -> int:
        """The cursor before the `newest` letters. Raises what asyncpg does."""
        async with self._database.acquire() as connection:
            return await self._store.start_of(connection, chat, newest)

    async def run(self) -> None:
        """Read for the hungry, round after round, until cancelled; with the database away, again a second later."""
        while True:
            await self._anyone.wait()
            try:
                await self.run_once()
            except AWAY as error:
                log.warning("mailbox.not_read", error=type(error).__name__)
                await asyncio.sleep(_RETRY_S)
                continue
            if self._readers:
                await self._wake.wait(self._poll_every)
            else:
                self._anyone.clear()

    def end(self) -> None:
        """Let every open page's stream end: the server stops."""
        self.has_ended = True
        for reader in self._readers:
            reader.end()

    async def run_once(self) -> None:
        """One round: new letters for every reader that has taken its last ones."""
        hungry = [reader for reader in self._readers if reader.is_hungry]
        if not hungry:
            return
        async with self._database.acquire() as connection:
            asked = [(reader.chat, reader.cursor) for reader in hungry]
            pages = await self._store.read(connection, asked, PAGE)
        for reader, letters in zip(hungry, pages, strict=True):
            reader.put(letters)
