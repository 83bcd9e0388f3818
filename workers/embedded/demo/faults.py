"""`parley demo --break`: each takes one part out of the demo's own worker process, and nothing anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import uuid4

from schemas.event import Event
from workers.agents.turn import Turn
from workers.api import webhooks
from workers.channels.webhook import read_request
from workers.delivery.loops.reconciler import Reconciler
from workers.embedded.demo.plan import Fault
from workers.memory.snapshot import Snapshot
from workers.turns import execution
from workers.turns.recovery import Recovered, Recovery

_NOTHING: Final = Snapshot(notes=(), history=(), omitted_items=0, omitted_notes=0)


def break_part(fault: Fault) -> None:
    """Take the part out of this process."""
    _BREAKS[fault]()


def _dedupe() -> None:
    """The adapter gives every request a fresh event id, so that nothing is recognized."""

    def read_as_new(*arguments: Any) -> Event:
        event = read_request(*arguments)
        return event.model_copy(update={"event_id": f"{event.event_id}-{uuid4().hex[:8]}"})

    _replace(webhooks, "read_request", read_as_new)


def _recover() -> None:
    """Nobody takes over what a dead worker owned."""

    async def no_sweep(_: Recovery) -> Recovered:
        return Recovered()

    _replace(Recovery, "run_once", no_sweep)


def _reconcile() -> None:
    """Nobody looks after deliveries whose outcome is unknown."""

    async def idle(_: Reconciler) -> None:
        return

    _replace(Reconciler, "run", idle)


def _recall() -> None:
    """The agent is shown neither notes nor earlier messages."""

    def forgetful(*, snapshot: Snapshot | None, **others: Any) -> Turn:
        return Turn(snapshot=_NOTHING if snapshot is not None else None, **others)

    _replace(execution, "Turn", forgetful)


def _replace(owner: object, name: str, by: object) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, by)


_BREAKS: Final[Mapping[Fault, Callable[[], None]]] = {
    "dedupe": _dedupe,
    "recover": _recover,
    "reconcile": _reconcile,
    "recall": _recall,
}
