"""A Postgres that answers and takes nothing: read-only, or its disk is full."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.outages.serving import Site

pytestmark = pytest.mark.kafka

REFUSING_SECONDS = 4.0
FULL_DISK = """
create function disk_is_full() returns trigger language plpgsql as
$$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
do $$ declare name text; begin
    for name in select quote_ident(tablename) from pg_tables where schemaname = 'public' loop
        execute format('create trigger disk_is_full before insert or update or delete on %s'
                       ' for each statement execute function disk_is_full()', name);
    end loop;
end $$;
"""
ROOM_AGAIN = "drop function disk_is_full() cascade"


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """The whole server refuses writes (25006), on connections that are open as well; as after a fail-over."""
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute("alter system set default_transaction_read_only = on")
            connection.execute("select pg_reload_conf()")
            yield
        finally:
            connection.execute("alter system reset default_transaction_read_only")
            connection.execute("select pg_reload_conf()")


@contextmanager
def disk_full(url: str) -> Iterator[None]:
    """Every statement that would write a row fails as on a full disk (53100); reading goes on."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FULL_DISK)
        try:
            yield
        finally:
            connection.execute(ROOM_AGAIN)


REFUSALS = {"read-only": read_only, "disk full": disk_full}


@pytest.mark.rule("EN-39", "EN-14")
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_postgres_that_takes_no_writes_is_waited_for_and_dead_letters_nothing(
    site: Site, refusal: str
) -> None:
    worker = site.serve()
    await worker.ready()
    await site.publish(20)
    begun = worker.lines()
    with REFUSALS[refusal](site.url):
        await site.publish(20)
        await worker.endures(REFUSING_SECONDS, {"lease"}, begun)
        await site.publish(20)
    await worker.ready()
    await site.publish(20)
    await site.answered()


@pytest.mark.long
@pytest.mark.rule("EN-39")
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_worker_that_starts_on_a_postgres_that_takes_no_writes_waits_for_it(
    site: Site, refusal: str
) -> None:
    with REFUSALS[refusal](site.url):
        await site.publish(20)
        worker = site.serve()
        await worker.endures(REFUSING_SECONDS, {"lease", "kafka_delivery"})
    await worker.ready()
    await site.answered()
