"""What goes out as JSON rows comes back from Postgres as it was."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.text import clean
from workers.postgres.database import Database
from workers.postgres.failures import UnwritableRow, is_data_error, is_retryable
from workers.postgres.rows import as_rows

COLUMNS = ("id", "number", "text", "bytes", "at", "wait", "flag")
READ = """
select * from json_to_recordset($1::json)
    as r (id uuid, number bigint, text text, bytes bytea, at timestamptz, wait interval, flag boolean)
"""

FIRST, LAST = datetime.fromisoformat("1970-01-01"), datetime.fromisoformat("9998-01-01")
ROWS = st.tuples(
    st.uuids(),
    st.integers(-(2**63), 2**63 - 1) | st.none(),
    st.text().map(clean) | st.none(),
    st.binary() | st.none(),
    st.datetimes(
        datetime.fromisoformat("1970-01-01"), datetime.fromisoformat("9998-01-01"), timezones=st.just(UTC)
    )
    | st.none(),
    st.timedeltas(timedelta(days=-3650), timedelta(days=3650)) | st.none(),
    st.booleans() | st.none(),
)


async def read(url: str, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    database = await Database.open(url, max_size=1)
    try:
        return [tuple(row) for row in await database.fetch(READ, as_rows(COLUMNS, rows))]
    finally:
        await database.close()


async def test_rows_come_back_as_they_were(database_url: str) -> None:
    database = await Database.open(database_url, max_size=1)
    loop = asyncio.get_running_loop()

    @settings(max_examples=150, deadline=None)
    @given(rows=st.lists(ROWS, min_size=1, max_size=20))
    def holds(rows: list[tuple[object, ...]]) -> None:
        reading = asyncio.run_coroutine_threadsafe(database.fetch(READ, as_rows(COLUMNS, rows)), loop)
        assert [tuple(row) for row in reading.result(10)] == rows

    try:
        await asyncio.to_thread(holds)
    finally:
        await database.close()


async def test_the_edges_of_each_type_come_back(database_url: str) -> None:
    edges: list[tuple[object, ...]] = [
        (
            uuid4(),
            2**63 - 1,
            'a"b\\c\n\u2028é😀',
            bytes(range(256)),
            datetime.now(UTC),
            timedelta(days=-1),
            True,
        ),
        (uuid4(), -(2**63), "", b"", datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1), False),
        (uuid4(), *[None] * 6),
    ]
    assert await read(database_url, edges) == edges


async def test_the_uuids_that_the_driver_gives_can_go_back(database_url: str) -> None:
    [given_back] = await read(database_url, [(uuid4(), *[None] * 6)])
    again: list[tuple[object, ...]] = [given_back]
    assert type(given_back[0]) is not UUID
    assert await read(database_url, again) == again


async def test_text_that_cannot_be_stored_is_its_rows_own_fault(database_url: str) -> None:
    with pytest.raises(UnwritableRow) as surrogate:
        as_rows(COLUMNS, [(uuid4(), 1, "\ud800", None, None, None, None)])
    with pytest.raises(asyncpg.PostgresError) as nul:
        await read(database_url, [(uuid4(), 1, "a\0b", None, None, None, None)])
    for error in (surrogate.value, nul.value):
        assert is_data_error(error)
        assert not is_retryable(error)


def test_a_value_of_no_columns_type_is_a_mistake_and_no_bad_row() -> None:
    with pytest.raises(TypeError, match="object"):
        as_rows(COLUMNS, [(uuid4(), object(), None, None, None, None, None)])
