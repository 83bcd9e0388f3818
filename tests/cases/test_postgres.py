"""Faults of a database's clients: connections that leak, poolers that strand locks, conflicts that repeat work."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrations import runner
from tests.cli.test_poolers import listens, needs_pgbouncer, pooled
from tests.support.desk import a_desk
from tests.support.events import KEYS, an_agent, an_event
from tests.support.running import Site
from tests.support.waiting import eventually, wait_until
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LabChannel
from workers.postgres.database import Database, PoolerInBetween
from workers.roles import worker as worker_module
from workers.roles.worker import PartFailed, Worker

POOL = 3
BESIDE_THE_POOL = 3
"""The lease, the hints and the readiness probe."""
EVENTS = 200


class SlowWay:
    """A way to the server on which connecting takes long, and which can be cut."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.delay = timedelta(0)
        self.connects = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connects += 1
        await asyncio.sleep(self.delay.total_seconds())
        server_reader, server_writer = await asyncio.open_unix_connection(self._socket)
        self._ends |= {writer, server_writer}
        await asyncio.gather(_pump(reader, server_writer), _pump(server_reader, writer))
        self._ends -= {writer, server_writer}

    def cut(self) -> None:
        for end in self._ends:
            end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def a_slow_way(url: str) -> AsyncIterator[tuple[SlowWay, str]]:
    """The way, and the URL that leads over it."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    way = SlowWay(f"{parts['host']}/.s.PGSQL.5432")
    server = await asyncio.start_server(way.carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield way, f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"
    server.close()
    way.cut()


class Impatient(Database):
    """A pool whose callers wait less than a slow connect takes."""

    @classmethod
    async def open(cls, url: str, **options: Any) -> Database:
        return await Database.open(url, **{**options, "acquire_timeout": timedelta(milliseconds=110)})


@pytest.mark.kafka
async def test_pb_22_waits_for_a_connection_that_time_out_leak_none_and_lose_no_event(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MagicStack/asyncpg issue 467: an acquire that was cancelled in flight kept its connection for ever."""
    monkeypatch.setattr(worker_module, "Database", Impatient)
    lab = LabChannel(keys=KEYS)

    async def runs(turn: Turn) -> None:
        await turn.reply(turn.event.text)

    app = App("tested", agents=[an_agent(runs=runs)], channels=[lab])
    async with a_slow_way(site.life.database_url) as (way, url):
        settings = replace(
            site.life.settings(), database_url=url, pool_size=POOL, lease_for=timedelta(seconds=10)
        )
        worker = Worker(app, settings)
        await worker.start()
        try:
            way.delay = timedelta(milliseconds=150)
            for batch in range(10):
                way.cut()
                await site.publish(*(an_event(text=f"m{batch}-{n}") for n in range(EVENTS // 10)))
                await asyncio.sleep(0.2)
            connected_slowly = way.connects
            way.delay = timedelta(0)
            await site.settled(EVENTS, timedelta(seconds=60))

            published = time.monotonic()
            await site.publish(an_event(text="afterwards"))
            await eventually("a new one is answered", lambda: "afterwards" in lab.received)
            took = time.monotonic() - published
            await eventually("all connections are back", lambda: worker._database.in_use == 0)
            open_now = await site.value(
                "select count(*) from pg_stat_activity where datname = current_database()"
                " and application_name like 'parley%' and application_name <> 'parley-test'"
            )
            ready: Any = await worker.health.ready()
        finally:
            await worker.drain()

    assert connected_slowly > 20
    assert len(lab.received) == EVENTS + 1
    assert set(lab.received) == {f"m{batch}-{n}" for batch in range(10) for n in range(EVENTS // 10)} | {
        "afterwards"
    }
    assert took < 2
    assert open_now <= POOL + BESIDE_THE_POOL
    assert all(ready.values()), ready


ADVISORY_LOCKS = """
select count(*) from pg_locks
 where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
"""


@needs_pgbouncer
async def test_pb_24_three_replicas_behind_a_pooler_say_so_at_start_and_leave_no_lock(
    site: Site, database_url: str
) -> None:
    """authentik issue 23876, pgbouncer issue 102: a session's lock stayed on a pooled connection, and all waited."""
    app = App("tested", agents=[an_agent()], channels=[LabChannel(keys=KEYS)])
    with tempfile.TemporaryDirectory(prefix="parley-bouncer-") as folder:
        process, url = pooled(database_url, Path(folder), "extra_float_digits")
        try:
            wait_until("it listens", lambda: listens(url, process))
            for _ in range(2):
                refusals = await asyncio.gather(*(refusal(app, site, url) for _ in range(3)))
                assert all("leads to a pooler" in text for text in refusals), refusals
                assert await site.value(ADVISORY_LOCKS) == 0
            assert await asyncio.to_thread(runner.upgrade, url) == runner.head()
            assert await site.value(ADVISORY_LOCKS) == 0
        finally:
            process.terminate()
            process.wait()
    assert await site.value("select count(*) from worker_sessions") == 0


async def refusal(app: App, site: Site, url: str) -> str:
    """Start a worker over `url`; why it ended."""
    worker = Worker(app, replace(site.life.settings(), database_url=url))
    try:
        async with asyncio.timeout(30):
            await worker.start()
            await worker.run_until_stopped()
    except PoolerInBetween as error:
        return str(error)
    except PartFailed as error:
        return str(error.__cause__)
    finally:
        await worker.drain()
    return "it started"


CONFLICTS = """
create sequence conflicts;
create function conflict() returns trigger language plpgsql as $$
declare nth bigint := nextval('conflicts');
begin
    if nth <= 2 then raise exception 'injected' using errcode = '40001'; end if;
    if nth = 3 then raise exception 'injected' using errcode = '40P01'; end if;
    return new;
end $$;
create trigger conflict before update on runs for each row when (new.status = 'succeeded') execute function conflict();
"""


async def test_pb_25_a_completion_that_meets_conflicts_is_written_again_and_the_agent_not_called_again(
    database_url: str,
) -> None:
    """graphile/worker issue 387, OCA/queue issue 343: the finished job ran again, since its end was not recorded."""
    called: list[str] = []

    async def runs(turn: Turn) -> None:
        called.append(turn.event.text)
        await turn.reply("done")

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.database.execute(CONFLICTS)
        [run_id] = await desk.admit("echo", an_event(text="once"))
        await desk.work()

        run = await desk.run(run_id)
        assert await desk.value("select last_value from conflicts") == 4
        assert (run["status"], run["retries"], run["crashes"], run["epoch"]) == ("succeeded", 0, 0, 1)
        assert called == ["once"]
        assert await desk.replies() == ["done"]
        assert await desk.value("select count(*) from turns") == 0
