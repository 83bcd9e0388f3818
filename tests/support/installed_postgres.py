"""A Postgres that the system has installed, behind the few methods that the embedded one offers.

`PARLEY_TEST_POSTGRES` names the folder of its programs, for instance `/usr/lib/postgresql/15/bin`.
"""

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

VARIABLE = "PARLEY_TEST_POSTGRES"
_OWNER = "postgres"
_START_SECONDS = "60"


class InstalledPostgres:
    """One server over the data in `folder`, on a unix socket there, as the system's own user where we are root."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self._owner = pwd.getpwnam(_OWNER) if os.geteuid() == 0 else None

    def ensure_pgdata_inited(self) -> None:
        """Make the data where there is none."""
        if (self._folder / "PG_VERSION").exists():
            return
        if self._owner is not None:
            os.chown(self._folder, self._owner.pw_uid, self._owner.pw_gid)
        self._run("initdb", "--auth=trust", "--encoding=UTF8", "--username=postgres", "--no-sync")

    def start(self) -> None:
        """Start and wait until it answers."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self._folder}"
        log = str(self._folder / "server.log")
        self._run("pg_ctl", "start", "-w", "-t", _START_SECONDS, "-l", log, "-o", options)

    ensure_postgres_running = start

    def get_uri(self, database: str) -> str:
        """For asyncpg, psycopg and SQLAlchemy alike."""
        return f"postgresql://postgres:@/{database}?host={quote(str(self._folder), safe='/')}"

    def get_pid(self) -> int | None:
        """The process that all others of the server come from; None where it does not run."""
        try:
            return int((self._folder / "postmaster.pid").read_text(encoding="utf-8").split("\n")[0])
        except FileNotFoundError:
            return None

    def cleanup(self) -> None:
        """Stop at once and leave the data."""
        if (self._folder / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-m", "immediate", "-w")

    def _run(self, program: str, *arguments: str) -> None:
        found = shutil.which(program, path=str(self._programs))
        if found is None:
            raise FileNotFoundError(f"{VARIABLE}={self._programs} holds no {program}")
        subprocess.run(
            [found, "-D", str(self._folder), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
            user=None if self._owner is None else self._owner.pw_uid,
            group=None if self._owner is None else self._owner.pw_gid,
        )
