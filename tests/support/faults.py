"""Faults on order: at the points that the engine reports, or raised by the database for chosen rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from workers.postgres.database import Database


class Faults:
    """Give it as `reached`; it counts the points and does, once each and in order, what was ordered at one."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._orders: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)

    def __call__(self, point: str) -> None:
        self.seen[point] += 1
        if self._orders[point]:
            self._orders[point].pop(0)()

    def at(self, point: str, act: Callable[[], None]) -> None:
        """Do `act` when `point` is reached next."""
        self._orders[point].append(act)

    def fail(self, point: str, error: Exception) -> None:
        """Raise `error` when `point` is reached next."""

        def act() -> None:
            raise error

        self.at(point, act)


async def poison(
    database: Database, table: str, event: str, row_is_poison: str, sqlstate: str = "22003"
) -> None:
    """Let `event` (`insert`, `update`) of every row of `table` that fits the condition raise `sqlstate`."""
    await database.execute(
        f"create or replace function poisoned_{table}_{event}() returns trigger language plpgsql as $$ begin"
        f" raise exception 'injected' using errcode = '{sqlstate}'; end $$"
    )
    await database.execute(
        f"create trigger poisoned before {event} on {table} for each row when ({row_is_poison})"
        f" execute function poisoned_{table}_{event}()"
    )


async def fail_first(database: Database, table: str, event: str, sqlstate: str, times: int = 2) -> None:
    """Let the first `times` statements that `event` rows of `table` raise `sqlstate`, whatever the rows are."""
    await database.execute("create sequence if not exists injected")
    await database.execute("alter sequence injected restart")
    await database.execute(
        "create or replace function failing() returns trigger language plpgsql as $$ begin"
        f" if nextval('injected') <= {times} then raise exception 'injected' using errcode = '{sqlstate}'; end if;"
        " return null; end $$"
    )
    await database.execute(
        f"create trigger failing after {event} on {table} for each statement execute function failing()"
    )
