"""How many statements a worker sends: counted in its own connections, read by whoever measures it."""

import mmap
import struct
from pathlib import Path
from typing import Any, Final, Self

import asyncpg

from workers.postgres.database import Database
from workers.roles.settings import Settings

_NUMBER: Final = struct.Struct("=q")


class Count:
    """A number in a file that two processes share: one adds to it, the other reads it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _NUMBER.size)

    @classmethod
    def new(cls, path: Path) -> Self:
        """A count of 0 in a new file at `path`."""
        path.write_bytes(_NUMBER.pack(0))
        return cls(path)

    @property
    def value(self) -> int:
        number: int = _NUMBER.unpack_from(self._memory)[0]
        return number

    def add(self) -> None:
        _NUMBER.pack_into(self._memory, 0, self.value + 1)


async def counted_pool(settings: Settings, count: Count) -> Database:
    """The pool that a worker of these settings would open, every statement counted, `begin` and `commit` too."""

    class CountingConnection(asyncpg.Connection):  # type: ignore[misc]  # the driver brings no types
        """Sends what it is given, and counts it."""

        async def execute(self, *arguments: Any, **options: Any) -> Any:
            count.add()
            return await super().execute(*arguments, **options)

        async def fetch(self, *arguments: Any, **options: Any) -> Any:
            count.add()
            return await super().fetch(*arguments, **options)

        async def fetchrow(self, *arguments: Any, **options: Any) -> Any:
            count.add()
            return await super().fetchrow(*arguments, **options)

        async def fetchval(self, *arguments: Any, **options: Any) -> Any:
            count.add()
            return await super().fetchval(*arguments, **options)

    return await Database.open(
        settings.database_url, min_size=0, max_size=settings.pool_size, connection_class=CountingConnection
    )
