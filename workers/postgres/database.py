"""A bounded pool of connections whose transactions cannot stay open or wait for long.

Every connection carries `idle_in_transaction_session_timeout` and `lock_timeout`, so that a process that stops in
the middle of a transaction holds its locks for seconds only. A pooler that swallows those settings is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Protocol

import asyncpg

from schemas.errors import Misconfigured

# What no server has by default, and every connection of ours asks for.
_REQUIRE_SETTINGS: Final = """
do $$ begin
    if current_setting('enable_bitmapscan') <> 'off' then
        raise exception 'the settings of the connection were dropped';
    end if;
end $$
"""


class Row(Protocol):
    """One row: columns by name or place, in the driver's Python types."""

    def __getitem__(self, column: str | int) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


class Connection(Protocol):
    """A connection, in or outside a transaction; the driver's own methods that the stores use."""

    async def fetch(self, statement: str, *arguments: object) -> Sequence[Row]: ...

    async def fetchrow(self, statement: str, *arguments: object) -> Row | None: ...

    async def fetchval(self, statement: str, *arguments: object) -> Any: ...

    async def execute(self, statement: str, *arguments: object) -> str: ...


class PoolerInBetween(Misconfigured):
    """The URL leads to a pooler in transaction mode (PgBouncer) instead of PostgreSQL."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"PARLEY_DATABASE_URL leads to a pooler that does not keep a connection's settings ({detail}): time-outs, "
            "prepared statements and LISTEN would not hold; give the server's own address, a worker needs "
            "PARLEY_POOL_SIZE connections and three more"
        )
        self.detail = detail


async def _connect(*arguments: Any, **options: Any) -> asyncpg.Connection:
    """As asyncpg does, where what answers is the server itself. Raises PoolerInBetween."""
    try:
        connection = await asyncpg.connect(*arguments, **options)
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" in str(error):
            raise PoolerInBetween(str(error)) from None
        raise
    try:
        # One message: a pooler may give a statement and its preparation to two servers.
        await connection.execute(_REQUIRE_SETTINGS)
    except asyncpg.RaiseError as error:
        connection.terminate()
        raise PoolerInBetween(str(error)) from None
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _leave_as_is(_connection: object) -> None:
    """No statement of ours changes a session (nothing but SET LOCAL), so there is nothing to reset on release."""


def _milliseconds(value: timedelta) -> str:
    return str(int(value / timedelta(milliseconds=1)))


class Database:
    """Owns one pool; `close()` ends it. Give it to rooms, never a connection."""

    def __init__(self, pool: asyncpg.Pool, acquire_timeout: timedelta) -> None:
        self._pool = pool
        self._acquire_seconds = acquire_timeout.total_seconds()

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        min_size: int = 1,
        max_size: int = 8,
        application_name: str = "parley",
        lock_timeout: timedelta = timedelta(seconds=5),
        idle_in_transaction_timeout: timedelta = timedelta(seconds=5),
        statement_timeout: timedelta = timedelta(seconds=30),
        acquire_timeout: timedelta = timedelta(seconds=10),
        connection_class: type[asyncpg.Connection] = asyncpg.Connection,
    ) -> Database:
        """Connect; raises asyncpg errors or OSError where the server cannot be reached."""
        pool = await asyncpg.create_pool(
            url,
            min_size=min_size,
            max_size=max_size,
            connect=_connect,
            connection_class=connection_class,
            timeout=10,
            command_timeout=statement_timeout.total_seconds() + 5,
            max_inactive_connection_lifetime=300,
            reset=_leave_as_is,
            server_settings={
                "application_name": application_name,
                "lock_timeout": _milliseconds(lock_timeout),
                "idle_in_transaction_session_timeout": _milliseconds(idle_in_transaction_timeout),
                "statement_timeout": _milliseconds(statement_timeout),
                "timezone": "UTC",
                "jit": "off",
                # A plan made while a table was small would go on scanning it as it grows; every statement has an index.
                "enable_seqscan": "off",
                "enable_bitmapscan": "off",
            },
        )
        return cls(pool, acquire_timeout)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A connection outside any transaction; raises TimeoutError where none comes free in time."""
        async with self._pool.acquire(timeout=self._acquire_seconds) as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One short transaction: commits at the end, rolls back on any exception."""
        async with self._pool.acquire(timeout=self._acquire_seconds) as connection, connection.transaction():
            yield connection

    async def fetch(self, statement: str, *arguments: object) -> Sequence[Row]:
        async with self.acquire() as connection:
            return await connection.fetch(statement, *arguments)

    async def fetchrow(self, statement: str, *arguments: object) -> Row | None:
        async with self.acquire() as connection:
            return await connection.fetchrow(statement, *arguments)

    async def execute(self, statement: str, *arguments: object) -> str:
        async with self.acquire() as connection:
            return await connection.execute(statement, *arguments)

    @property
    def size(self) -> int:
        """Connections that are open now."""
        size: int = self._pool.get_size()
        return size

    @property
    def in_use(self) -> int:
        """Connections that are handed out now."""
        used: int = self._pool.get_size() - self._pool.get_idle_size()
        return used

    async def close(self, within: timedelta = timedelta(seconds=10)) -> None:
        """Close when the connections have come back, or break them off after `within`."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()
