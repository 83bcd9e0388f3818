"""Faults of migrations: replicas that start together deadlock, and leave an index that nobody ever repairs."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrations import runner

ROOT = Path(__file__).parents[2]
MIGRATE = "from migrations import runner; import sys; print(runner.upgrade(sys.argv[1]))"
SCHEMA = """
select 'column', table_name || '.' || column_name, data_type || coalesce(column_default, '') || is_nullable
  from information_schema.columns where table_schema = 'public'
union all select 'index', indexname, indexdef from pg_indexes where schemaname = 'public'
union all select 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
  from pg_constraint where connamespace = 'public'::regnamespace
union all select 'function', oid::regprocedure::text, md5(prosrc)
  from pg_proc where pronamespace = 'public'::regnamespace
order by 1, 2, 3
"""


def five_at_once(url: str) -> list[tuple[int, bytes]]:
    """Five processes migrate; exit code and output of each."""
    replicas = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATE, url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for _ in range(5)
    ]
    said = [replica.communicate(timeout=120)[0] for replica in replicas]
    return [(replica.returncode, out) for replica, out in zip(replicas, said, strict=True)]


def found(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.timeout(120)
def test_pb_26_replicas_that_migrate_at_once_make_one_schema_and_no_invalid_index(
    empty_database_url: str,
) -> None:
    """litellm pull 39384, golang-migrate issue 960: two starts deadlocked, and the half-made index stayed invalid."""
    url, head = empty_database_url, runner.head()
    done = (0, f"{head}\n".encode())

    first = five_at_once(url)
    made = found(url, SCHEMA)
    second = five_at_once(url)

    assert first == [done] * 5
    assert second == [done] * 5
    assert found(url, "select version_num from alembic_version") == [(head,)]
    assert found(url, "select count(*) from pg_index where not indisvalid or not indisready") == [(0,)]
    assert found(url, "select count(*) from pg_locks where locktype = 'advisory'") == [(0,)]
    assert len(made) > 100
    assert found(url, SCHEMA) == made
