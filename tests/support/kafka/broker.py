"""One broker process: started, killed, stopped in mid-flight, and back on the same port with the same data.

Ports come from below the range that outgoing connections use, so that a port stays free while its broker is
down. The process dies with the thread that started it (`setpriv --pdeathsig`), which the cluster keeps for
its own life.
"""

import random
import shutil
import signal
import socket
import subprocess
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tests.support.kafka.jars import java
from tests.support.waiting import NeverHappened, wait_until

START_WITHIN = timedelta(seconds=60)
STOP_WITHIN = timedelta(seconds=30)
PORTS = range(18_000, 32_000)
LOOPBACK = "127.0.0.1"


class BrokerFailed(Exception):
    """A broker process ended, or did not answer; the text carries the end of its log."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now."""
    found: list[int] = []
    for port in random.sample(PORTS, k=len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise BrokerFailed(f"fewer than {count} free ports")


def java_command(jars: Path, heap_mb: int, *arguments: str) -> list[str]:
    """`arguments` are a class and what it is given. Tuned for a quick start: a test waits for it."""
    runtime = java()
    assert runtime is not None
    options = [f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
    return [str(runtime), *options, "-cp", f"{jars}/*", *arguments]


@dataclass(slots=True)
class Broker:
    """One node of a cluster; `spawner` is the single thread that starts its process."""

    node_id: int
    folder: Path
    jars: Path
    client_port: int
    heap_mb: int
    spawner: Executor
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"{LOOPBACK}:{self.client_port}"

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log_file(self) -> Path:
        return self.folder / "broker.log"

    @property
    def pid(self) -> int:
        """Of the running process; an error when it does not run."""
        return self._running().pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process; it answers some time later (`wait_for_port`)."""
        self._process = self.spawner.submit(self._spawn).result()

    def wait_for_port(self) -> None:
        """Until the listener for clients accepts."""
        try:
            wait_until(f"broker {self.node_id} accepts connections", self._accepts, START_WITHIN)
        except NeverHappened as error:
            raise BrokerFailed(f"{error}\n{self.end_of_log()}") from error

    def kill(self) -> None:
        """kill -9, and gone when this returns; a stopped process is killed as well."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and gone when this returns: leadership has moved, logs are flushed."""
        process = self._running()
        process.terminate()
        process.wait(STOP_WITHIN.total_seconds())

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    def end_of_log(self) -> str:
        return self.log_file.read_text("utf-8", "replace")[-3000:] if self.log_file.exists() else "(no log)"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise BrokerFailed(f"broker {self.node_id} does not run\n{self.end_of_log()}")
        return self._process

    def _spawn(self) -> subprocess.Popen[bytes]:
        setpriv = shutil.which("setpriv")
        tied = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        command = java_command(self.jars, self.heap_mb, "kafka.Kafka", str(self.properties_file))
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [*tied, *command],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _accepts(self) -> bool:
        self._running()
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((LOOPBACK, self.client_port)) == 0
