"""PgBouncer in transaction mode is told apart from PostgreSQL, and refused with the reason."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrations import runner
from tests.cli.desk import Terminal
from tests.cli.test_serve import said_by, served
from tests.support.kafka.broker import free_ports
from tests.support.waiting import wait_until
from workers.postgres.database import Database, PoolerInBetween

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
OURS = (
    "application_name,lock_timeout,idle_in_transaction_session_timeout,statement_timeout,jit,enable_seqscan"
)
IGNORED = f"extra_float_digits,options,timezone,{OURS},enable_bitmapscan"

needs_pgbouncer = pytest.mark.skipif(PGBOUNCER is None, reason="there is no pgbouncer here")


def pooled(url: str, folder: Path, ignored: str) -> tuple[subprocess.Popen[bytes], str]:
    """A PgBouncer in transaction mode in front of the database at `url`, and the URL that leads to it."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    port = free_ports(1)[0]
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"""[databases]
* = host={parts["host"]} user={parts["user"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
ignore_startup_parameters = {ignored}
"""
    )
    folder.chmod(0o755)
    config.chmod(0o644)
    assert PGBOUNCER is not None
    # It does not run as root, and only the server's own user reaches its socket.
    owner = Path(str(parts["host"])).stat().st_uid
    process = subprocess.Popen(
        [PGBOUNCER, str(config)],
        user=owner if os.getuid() == 0 else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return process, f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"


@pytest.fixture(params=["extra_float_digits", IGNORED], ids=["refusing settings", "dropping settings"])
def pooler(request: pytest.FixtureRequest, database_url: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="parley-bouncer-") as folder:
        process, url = pooled(database_url, Path(folder), request.param)
        try:
            wait_until("it listens", lambda: listens(url, process))
            yield url
        finally:
            process.terminate()
            process.wait()


def listens(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "pgbouncer ended"
    try:
        with psycopg.connect(url) as connection:
            return connection.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


@needs_pgbouncer
@pytest.mark.rule("EN-41")
async def test_a_pooler_in_transaction_mode_is_refused_with_the_reason(pooler: str) -> None:
    with pytest.raises(PoolerInBetween, match="give the server's own address"):
        await Database.open(pooler)

    lazy = await Database.open(pooler, min_size=0)
    with pytest.raises(PoolerInBetween):
        await lazy.fetch("select 1")
    await lazy.close()


@needs_pgbouncer
@pytest.mark.rule("EN-41")
def test_check_and_serve_name_the_pooler(terminal: Terminal, pooler: str) -> None:
    app = terminal.write_app()
    terminal.environment |= {"PARLEY_DATABASE_URL": pooler, "PARLEY_KAFKA_BOOTSTRAP": "127.0.0.1:1"}

    checked = terminal.parley("check", app)
    with served(terminal, "turns") as (process, _address):
        code = process.wait(40)

    assert any("leads to a pooler" in line for line in checked.errors), checked.err
    assert code == 1
    assert "leads to a pooler" in said_by(terminal).splitlines()[-1]
    assert "Traceback" not in said_by(terminal)


@needs_pgbouncer
@pytest.mark.rule("EN-41")
def test_migrations_go_through_a_pooler(pooler: str) -> None:
    assert runner.upgrade(pooler) == runner.head()


INVALID = "select count(*) from pg_index where not indisvalid or not indisready"


@pytest.mark.rule("EN-41")
def test_five_replicas_that_migrate_an_empty_database_at_once_make_one_migration(
    terminal: Terminal, empty_database_url: str
) -> None:
    environment: dict[str, Any] = {
        **os.environ,
        "PARLEY_DATABASE_URL": empty_database_url,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-c", "from workers.cli import main; main()", "migrate", "--json"]
    replicas = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(5)
    ]
    said = [replica.communicate(timeout=120) for replica in replicas]

    assert [replica.returncode for replica in replicas] == [0] * 5, said
    assert {out for out, _ in said} == {f'{{"version": "{runner.head()}"}}\n'.encode()}
    with psycopg.connect(empty_database_url) as connection:
        # A migration that ran twice would have failed: nothing in it is conditional.
        assert connection.execute("select count(*) from alembic_version").fetchone() == (1,)
        assert connection.execute(INVALID).fetchone() == (0,)
