"""Which failures blame a row, shown by failures that a real server and a real driver raise."""

import asyncpg
import pytest

from workers.postgres.failures import is_data_error, is_retryable


async def failure_of(url: str, statement: str, *arguments: object) -> BaseException:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, *arguments)
    except Exception as error:
        return error
    finally:
        await connection.close()
    raise AssertionError("the statement succeeded")


@pytest.mark.rule("EN-14")
@pytest.mark.parametrize(
    ("statement", "argument"),
    [
        ("select $1::text", "a\0b"),
        ("select 1 / $1::integer", 0),
        ("select $1::text::integer", "x"),
        ("select $1::smallint", 100_000),
        ("select $1::text", "\ud800"),
        ("select $1::text", b"bytes"),
        ("insert into lanes (key, kind) values ('k', $1)", "planet"),
        ("insert into lanes (key, kind) values ($1, 'run')", None),
    ],
    ids=["nul", "zero", "no number", "too large", "surrogate", "type", "check", "null"],
)
async def test_a_row_is_blamed_for_what_it_holds(database_url: str, statement: str, argument: object) -> None:
    error = await failure_of(database_url, statement, argument)

    assert is_data_error(error)
    assert not is_retryable(error)


@pytest.mark.rule("EN-14")
@pytest.mark.parametrize(
    "statement",
    [
        "do $$ begin raise exception 'x' using errcode = '40001'; end $$",
        "do $$ begin raise exception 'x' using errcode = '40P01'; end $$",
        "do $$ begin raise exception 'x' using errcode = '55P03'; end $$",
        "do $$ begin raise exception 'x' using errcode = '53100'; end $$",
        "do $$ begin raise exception 'x' using errcode = '57014'; end $$",
        "do $$ begin raise exception 'x' using errcode = 'XX000'; end $$",
        "select pg_terminate_backend(pg_backend_pid())",
    ],
)
async def test_the_moment_is_blamed_for_the_rest(database_url: str, statement: str) -> None:
    error = await failure_of(database_url, statement)

    assert is_retryable(error)
    assert not is_data_error(error)


async def test_a_missing_table_is_neither(database_url: str) -> None:
    error = await failure_of(database_url, "select 1 from nowhere")

    assert not is_retryable(error)
    assert not is_data_error(error)


async def test_a_server_that_is_away_is_the_moments_fault() -> None:
    with pytest.raises(OSError, match="Connect") as raised:
        await asyncpg.connect("postgresql://nobody@127.0.0.1:1/none", timeout=2)

    assert is_retryable(raised.value)


async def test_a_connection_whose_end_was_announced_is_the_moments_fault() -> None:
    """asyncpg raises it when a query meets a connection between the server's farewell and its close."""
    assert is_retryable(asyncpg.InternalClientError("cannot switch to state 11"))
    assert is_retryable(asyncpg.ConnectionDoesNotExistError("connection was closed"))
