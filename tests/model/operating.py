"""What operators do, on both sides: reset, delete, cancel, prune."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.model import observed
from tests.model.expected import RUNS_KEPT, Book, Run
from tests.model.world import World
from workers.operations import conversations, runs
from workers.operations.errors import ActRefused

Act = Literal["reset", "reset and keep notes", "delete"]


def renew(world: World, book: Book, act: Act) -> None:
    """Refused while a turn is active, naming its run; else the next generation begins."""
    if book.lane_id is None:
        return
    if act == "delete":
        work = conversations.delete(world.lab.database, book.lane_id, "operator")
    else:
        keep_notes = act == "reset and keep notes"
        work = conversations.reset(world.lab.database, book.lane_id, "operator", keep_notes=keep_notes)
    if book.owner is not None:
        with pytest.raises(ActRefused, match=str(book.owner.run_id)):
            world.lab.do(work)
        return
    renewed = world.lab.do(work)
    waiting = list(book.queue)
    book.renew(delete=act == "delete", keep_notes=act == "reset and keep notes")
    for run in waiting:
        run.ended = world.now
    observed.same("the new generation", renewed.generation, book.generation)
    observed.same("queued runs that were cancelled", renewed.cancelled_runs, len(waiting))


def cancel(world: World, run: Run) -> None:
    """At once where nobody works on it, else its worker is asked."""
    [done] = world.lab.do(runs.cancel_runs(world.lab.database, [run.run_id], "operator"))
    observed.same("what became of the cancel", done.outcome, "requested" if run.holder else "cancelled")
    if run.holder is None:
        world.end(run, "cancelled")


def prune(world: World) -> None:
    """Whatever has had its time leaves; what is open, and what an open run may ask for again, stays."""
    world.lab.do(world.lab.sweeper.prune())
    for key, run in list(world.reserved.items()):
        if run.status != "open" and run.reserved_until is not None and run.reserved_until <= world.now:
            del world.reserved[key]
            run.reserved_until = None
    for run in world.runs:
        if run.status == "open":
            continue
        run.receipts.clear()
        sent = not any(reply.open for reply in run.replies)
        old = run.ended is not None and run.ended + RUNS_KEPT <= world.now
        if old and run.reserved_until is None and sent:
            run.pruned = True
    for book in world.books.values():
        for generation in range(book.generation + 1):
            book.trim(generation, world.now, protected=book.owner)
