"""The database's clock, moved: every decision in SQL reads `parley_now()`, and a test's own database may shift it."""

from datetime import timedelta

from workers.postgres.database import Database


async def shift_clock(database: Database, by: timedelta) -> None:
    """Move `parley_now()` by `by` from wherever it stands; the real clock goes on behind it."""
    row = await database.fetchrow("select parley_now() - now() as ahead")
    assert row is not None
    seconds = (row["ahead"] + by).total_seconds()
    await database.execute(
        "create or replace function parley_now() returns timestamptz language sql stable parallel safe as"
        f" 'select now() + interval ''{seconds} seconds'''"
    )
