"""The faults, each a function of a stage under load; it returns in a phrase what it did, and fails if it could not."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from tests.replicas.app import STUBBORN
from tests.replicas.fleet import Worker
from tests.replicas.stage import LEASE, Stage
from tests.support.waiting import wait_until

AWAY_SECONDS = 6.0
SOON: Final = timedelta(seconds=40)
TAKEN_OVER = LEASE + timedelta(seconds=10)

MARKED_DEAD = (
    "select count(*) > 0 from worker_sessions where split_part(worker, ':', 2) = %s and dead_at is not null"
)
STILL_OPEN = """
select count(*) = 0 from runs where id::text = any(%s::text[]) and finished_at is null
"""
ITS_TURNS = """
select array_agg(t.run_id::text) from turns t join worker_sessions s on s.id = t.session_id
 where split_part(s.worker, ':', 2) = %s
"""
SESSIONS = "select count(*) from worker_sessions where split_part(worker, ':', 2) = %s"


def join(stage: Stage) -> str:
    """A fourth worker joins and takes its share."""
    fourth = stage.fleet.start()
    fourth.wait_until_ready()
    wait_until("the newcomer runs turns", lambda: _lines_of(stage, fourth) >= 10, SOON)
    return f"{fourth.name} joined"


def leave(stage: Stage) -> str:
    """SIGTERM to the busiest one: it drains and leaves."""
    victim = stage.busiest(turns=1)
    victim.send(signal.SIGTERM)
    code = victim.wait()
    assert code == 0, f"{victim.name} ended with code {code}"
    return f"{victim.name} drained and left"


def kill(stage: Stage) -> str:
    """kill -9 of a worker in the middle of turns and sends; another one is started."""
    victim = stage.busiest(turns=2, sends=1)
    victim.kill()
    time.sleep(1)
    stage.fleet.start().wait_until_ready()
    return f"{victim.name} was killed, and replaced"


def pause(stage: Stage) -> str:
    """SIGSTOP past the session's lease, until others have ended what it ran, then SIGCONT."""
    victim = stage.busiest(turns=2, events=f"{STUBBORN}-%")
    victim.send(signal.SIGSTOP)
    pid, stopped = str(victim.pid), time.monotonic()
    try:
        runs = stage.row(ITS_TURNS, pid) or []
        stage.wait_for("its session is taken over", MARKED_DEAD, pid, within=TAKEN_OVER)
        stage.wait_for("its turns were ended by others", STILL_OPEN, runs, within=TAKEN_OVER)
    finally:
        victim.send(signal.SIGCONT)
    seconds = time.monotonic() - stopped
    wait_until("it has a session again", lambda: (stage.row(SESSIONS, pid) or 0) > 1, SOON)
    return f"{victim.name} stood still for {seconds:.1f} s with {len(runs)} turns"


def broker(stage: Stage) -> str:
    """kill -9 of a broker that is not the controller; it comes back."""
    leader = stage.services.controller()
    victim = next(each for each in stage.services.kafka.brokers if each is not leader)
    victim.kill()
    time.sleep(AWAY_SECONDS)
    stage.services.kafka.restart(victim)
    return f"broker {victim.node_id} was killed and came back"


def controller(stage: Stage) -> str:
    """kill -9 of the active controller, which is a broker too; it comes back after another took its place."""
    victim = stage.services.controller()
    victim.kill()
    successor = stage.services.another_controller(than=victim)
    time.sleep(AWAY_SECONDS / 2)
    stage.services.kafka.restart(victim)
    return f"broker {victim.node_id} lost the lead to {successor.node_id} and came back"


def postgres(stage: Stage) -> str:
    """Postgres dies; a worker is killed while it is away; Postgres recovers from its log."""
    victim = stage.busiest(turns=1)
    stage.services.crash_postgres()
    time.sleep(AWAY_SECONDS / 2)
    victim.kill()
    time.sleep(AWAY_SECONDS / 4)
    stage.services.start_postgres()
    stage.fleet.start().wait_until_ready()
    return f"Postgres was away, and {victim.name} killed meanwhile"


def _lines_of(stage: Stage, worker: Worker) -> int:
    lines = stage.folder / "lines"
    return lines.read_text("utf-8").count(f'"turn": "{worker.pid}-') if lines.exists() else 0


FAULTS: Final[Mapping[str, Callable[[Stage], str]]] = {
    "join": join,
    "leave": leave,
    "kill": kill,
    "pause": pause,
    "broker": broker,
    "controller": controller,
    "postgres": postgres,
}
