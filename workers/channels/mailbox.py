"""What was said in a chat that has no platform of its own, kept in order and read by cursor."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from workers.postgres.database import Connection
from workers.postgres.sql import load

Direction = Literal["in", "out"]


@dataclass(frozen=True, slots=True)
class Letter:
    """One row; ids grow within a chat in the order in which rows become visible, `created_at` says when it
    was said."""

    id: int
    key: str
    direction: Direction
    body: str
    created_at: datetime


class MailboxStore:
    """The mailboxes of one account of one channel."""

    def __init__(self, channel: str, account: str) -> None:
        self._channel = channel
        self._account = account

    async def add(
        self,
        tx: Connection,
        chat: str,
        key: str,
        direction: Direction,
        body: str,
        said_at: datetime | None = None,
    ) -> None:
        """Keep a message once; the same key again changes nothing. Waits for other writers of the chat.

        `said_at` is database time, by default the present.
        """
        statement = load(__package__, "insert_mailbox")
        await tx.execute(statement, self._channel, self._account, chat, key, direction, body, said_at)

    async def clock(self, tx: Connection) -> datetime:
        """The database's time."""
        moment: datetime = await tx.fetchval(load(__package__, "read_clock"))
        return moment

    async def read(
        self, tx: Connection, readers: Sequence[tuple[str, int]], at_most: int
    ) -> list[list[Letter]]:
        """For each (chat, cursor) the letters after the cursor, oldest first, at most `at_most` each."""
        found: list[list[Letter]] = [[] for _ in readers]
        chats, cursors = [chat for chat, _ in readers], [cursor for _, cursor in readers]
        statement = load(__package__, "read_mailboxes")
        for row in await tx.fetch(statement, self._channel, self._account, chats, cursors, at_most):
            letter = Letter(row["id"], row["key"], row["direction"], row["body"], row["created_at"])
            found[row["reader"] - 1].append(letter)
        return found

    async def start_of(self, tx: Connection, chat: str, newest: int) -> int:
        """The cursor from which the `newest` letters of the chat are read."""
        statement = load(__package__, "find_mailbox_start")
        return int(await tx.fetchval(statement, self._channel, self._account, chat, newest))
