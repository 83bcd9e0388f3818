"""The database that tests stand on is real, durable and each test's own."""

import asyncpg
import psycopg

from migrations import runner


async def test_a_test_database_is_at_the_newest_schema(database_url: str) -> None:
    assert runner.current(database_url) == runner.head()


async def test_both_drivers_reach_it_and_commits_are_durable(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        durable = connection.execute("select current_setting('fsync')").fetchone()
    pool = await asyncpg.connect(database_url)
    try:
        most = await pool.fetchval("select current_setting('max_connections')")
    finally:
        await pool.close()

    assert durable == ("on",)
    assert most == "200"


async def test_what_one_database_holds_the_next_does_not(database_url: str, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()

    assert database_url != empty_database_url
    assert tables == (0,)
