"""What a command needs of the environment: the database, Kafka, or both, and who is asking."""

import getpass
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from workers.kafka.settings import KafkaSettings
from workers.postgres.database import Database
from workers.roles.settings import Settings, read_settings

# A command that talks to one of the two is not asked for the other.
_UNUSED_DATABASE: Final = {"PARLEY_DATABASE_URL": "postgresql://unused"}
_UNUSED_KAFKA: Final = {"PARLEY_KAFKA_BOOTSTRAP": "unused:9092"}


def database_url() -> str:
    """The database's URL. Raises InvalidSettings."""
    return database_settings().database_url


def database_settings() -> Settings:
    """Everything but what says where Kafka is. Raises InvalidSettings."""
    return read_settings({**_UNUSED_KAFKA, **os.environ})


def kafka_settings() -> KafkaSettings:
    """How to reach Kafka. Raises InvalidSettings."""
    return read_settings({**_UNUSED_DATABASE, **os.environ}).kafka


def all_settings() -> Settings:
    """Everything. Raises InvalidSettings."""
    return read_settings()


@asynccontextmanager
async def open_database(url: str | None = None) -> AsyncIterator[Database]:
    """A small pool for one command."""
    database = await Database.open(
        url or database_url(), min_size=1, max_size=2, application_name="parley-cli"
    )
    try:
        yield database
    finally:
        await database.close()


def operator() -> str:
    """Who acts, for the audit: PARLEY_OPERATOR, or user@host."""
    if name := os.environ.get("PARLEY_OPERATOR", "").strip():
        return name
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
