"""Where a command ends: done, or what happened, to which thing, and what to do, in one line on stderr.

Exit codes: 0 done; 1 refused, not found or misconfigured; 2 wrong usage; 3 Kafka or Postgres is away, try again;
130 interrupted. A traceback is a defect of ours.
"""

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import typer

from schemas.errors import ParleyError, Transient
from workers.cli.output import printable

T = TypeVar("T")

FAILED: Final = 1
AWAY: Final = 3
INTERRUPTED: Final = 130

_NO_TABLES: Final = ("42P01", "42703", "42883")


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, or the end of the command with its exit code."""
    with explained():
        return asyncio.run(work)


@contextmanager
def explained() -> Iterator[None]:
    """What is raised inside becomes lines on stderr and an exit code."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if (code := exit_code(error)) is None:
            raise
        for line in lines_of(error):
            say_error(line)
        raise typer.Exit(code) from None


def say_error(line: str) -> None:
    """One `error: ...` line on stderr."""
    sys.stderr.write(f"error: {printable(line)}\n")


def exit_code(error: Exception) -> int | None:
    """The exit code of a failure, None for one that nobody foresaw."""
    import asyncpg
    from sqlalchemy.exc import DBAPIError

    if isinstance(error, Transient):
        return AWAY
    if isinstance(error, ParleyError):
        return FAILED
    if isinstance(error, asyncpg.PostgresError) and _is_schema(error):
        return FAILED
    if isinstance(
        error, asyncpg.PostgresError | asyncpg.InterfaceError | DBAPIError | OSError | TimeoutError
    ):
        return AWAY
    return None


def lines_of(error: Exception) -> list[str]:
    """One line a mistake, without secrets."""
    import asyncpg

    from workers.telemetry.redact import redact_text

    problems = getattr(error, "problems", None)
    if isinstance(problems, tuple):
        return [redact_text(str(problem)) for problem in problems]
    text = " ".join(redact_text(str(error)).split()) or type(error).__name__
    if isinstance(error, ParleyError):
        return [text]
    if isinstance(error, asyncpg.PostgresError):
        if _is_schema(error):
            return [f"the database has another schema than this version ({text}): run `parley migrate`"]
        if isinstance(error, asyncpg.LockNotAvailableError):
            return ["somebody else holds what this would change: try again"]
        return [f"the database refused: {text} (SQLSTATE {error.sqlstate})"]
    return [f"the database cannot be reached: {text}; check PARLEY_DATABASE_URL and that the server runs"]


def _is_schema(error: Exception) -> bool:
    return getattr(error, "sqlstate", None) in _NO_TABLES
