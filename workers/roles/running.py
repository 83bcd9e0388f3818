"""`running(app)`: an app's worker inside a program, for as long as the block lasts; its end is an ordinary drain."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from workers.app import App
from workers.engine.engine import Engine
from workers.postgres.database import Database
from workers.roles.settings import Settings, read_settings
from workers.roles.worker import Worker


@asynccontextmanager
async def running(
    app: App, settings: Settings | None = None, database: Database | None = None
) -> AsyncIterator[Engine]:
    """Start the roles that `settings` name (default: the environment's) and hand out the engine; drain at the end.

    `database` is a pool of the caller's over the database of `settings.database_url`; it is used and left open.
    Raises InvalidSettings, other Misconfigured leaves, and PartFailed at the end where a part ended for good.
    """
    worker = Worker(app, settings or read_settings(), database=database)
    await worker.start()
    try:
        yield worker.engine
    finally:
        worker.engine.stop()
        await worker.drain()
    await worker.run_until_stopped()
