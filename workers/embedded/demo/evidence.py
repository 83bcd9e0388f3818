"""What the demo found in the database, at the platform and in the worker's metrics when its story had ended."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from workers.embedded.demo.platform import Attempt
from workers.postgres.database import Database
from workers.postgres.sql import load

READ_RUNS = load(__package__, "read_runs")
READ_STEPS = load(__package__, "read_steps")
READ_DELIVERIES = load(__package__, "read_deliveries")
READ_NOTES = load(__package__, "read_notes")


@dataclass(frozen=True, slots=True)
class Run:
    id: UUID
    event_id: str
    status: str
    reason: str | None
    crashes: int
    attempts: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Step:
    step: int
    call: int
    kind: str
    name: str
    state: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Sending:
    key: str
    state: str
    sends: int
    outcomes: list[str]


@dataclass(frozen=True, slots=True)
class Said:
    """What the person wrote, under which event id, how often the platform posted it and what it was answered."""

    event_id: str
    text: str
    statuses: list[int]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Steps are by run; `asked` counts the requests that reached the model in both lives of the worker."""

    said: list[Said]
    runs: list[Run]
    steps: dict[UUID, list[Step]]
    deliveries: list[Sending]
    notes: list[tuple[str, str]]
    attempts: list[Attempt]
    asked: int
    metrics: str
    exit_code: int

    @property
    def messages(self) -> list[Attempt]:
        """What the person received: each key once."""
        return [attempt for attempt in self.attempts if not attempt.repeated]


async def runs_of(database: Database) -> list[Run]:
    """Every run."""
    return [Run(*row) for row in await database.fetch(READ_RUNS)]


async def steps_of(database: Database, run: Run) -> list[Step]:
    """A run's journal."""
    return [Step(*row) for row in await database.fetch(READ_STEPS, run.id)]


async def deliveries_of(database: Database) -> list[Sending]:
    """Every delivery."""
    return [Sending(*row) for row in await database.fetch(READ_DELIVERIES)]


async def notes_of(database: Database) -> list[tuple[str, str]]:
    """Key and text of every note."""
    return [(row["key"], row["body"]) for row in await database.fetch(READ_NOTES)]
