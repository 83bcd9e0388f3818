"""Turns: claimed, gone on with and settled on both sides, also by workers who lost them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import note

from schemas.run import RunStatus
from tests.model import observed
from tests.model.expected import Chunk, Item, Note, Op, Reply, Run
from tests.model.laboratory import Handle, Worker
from tests.model.world import PLACES, World
from workers.agents.errors import LostOwnership
from workers.memory.notes import Receipt
from workers.turns.policy import Ended, LetGo, TryAgain
from workers.turns.settle import Settlement

ENDINGS: Final[Mapping[str, Ended | TryAgain | LetGo]] = {
    "succeeded": Ended(RunStatus.SUCCEEDED),
    "failed": Ended(RunStatus.FAILED, "it raised"),
    "denied": Ended(RunStatus.FAILED, "recall_denied", withhold_input=True),
    "cancelled": Ended(RunStatus.CANCELLED, "cancelled"),
    "retry": TryAgain(timedelta(hours=1), "busy"),
    "release": LetGo(),
}


class Crash(Exception):
    """The process ends at this point."""


class Turns:
    """What workers and agents do with the turns of `world`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lab = world.lab
        self._edits = 0

    def claim(self, worker: Worker, accounts: Sequence[str]) -> None:
        """The worker looks for due conversations of `accounts`; each that the rules let go must be found."""
        wanted = [book for book in self._world.books.values() if "/".join(PLACES[book.name][:2]) in accounts]
        claimable = {id(book): book.may_be_claimed(self._world.now) for book in wanted}
        heads = {id(book): book.queue[0] for book in wanted if book.queue}
        self._begin(worker, accounts, anew=False)
        for _ in range(3):
            left = [b for b in wanted if claimable[id(b)] == "yes" and heads[id(b)].holder is None]
            # Who crashed again and again lets the others wait for a second, so that a poisonous run is soon alone.
            if not left or any(run.crashes > 3 for run in self._world.runs):
                return
            self._begin(worker, accounts, anew=True)
        raise AssertionError(f"{left[0].name} is due and nobody can claim it")

    def _begin(self, worker: Worker, accounts: Sequence[str], *, anew: bool) -> None:
        by_id = {run.run_id: run for run in self._world.runs}
        for claimed in self._lab.do(self._lab.claim(worker, accounts, anew=anew)):
            run = by_id[claimed.own.run_id]
            book, resumed = run.book, run.snapshot is not None
            assert book.may_be_claimed(self._world.now) != "no", f"{run.event_id} is claimed, and may not be"
            handle = self._lab.do(self._lab.begin(worker, run, claimed))
            book.begin(run, handle, self._world.now)
            self._is_as_expected(handle, resumed=resumed)
            note(f"{worker.name} has {run.event_id} of {book.name}")

    def _is_as_expected(self, handle: Handle, *, resumed: bool) -> None:
        run, shown = handle.run, handle.claimed.snapshot
        assert shown is not None
        assert run.snapshot is not None
        past = run.snapshot
        observed.same("the recalled notes", tuple((n.key, n.body) for n in shown.notes), past.notes)
        observed.same("the recalled history", tuple((e.role, e.text) for e in shown.history), past.history)
        if past.omitted is not None:
            observed.same("how many items were omitted", shown.omitted_items, past.omitted)
        row = self._lab.do(observed.turn_of(self._lab.database, run))
        assert row is not None
        if not resumed:
            run.frozen = row["snapshot"]
        observed.same("the snapshot", row["snapshot"], run.frozen)
        observed.same("steps that the new owner knows", handle.recorded, run.journalled)

    def go_on(self, handle: Handle, op: Op, *, dies: bool) -> None:
        """The agent does what it did before, then `op`; it may die before its journal commits."""
        run, at = handle.run, handle.position
        if run.holder is not handle:
            self._act_in_vain(handle, self._world.fill(op))
            return
        if at < len(run.script):
            op = run.script[at]
        else:
            op = self._world.fill(op)
            run.script.append(op)
        replays = at < run.journalled
        if dies and not replays:
            handle.worker.faults.fail("journal.before_commit", Crash())
            with pytest.raises(Crash):
                self._lab.do(_perform(handle, op))
            self._edit_note(run, at, op)
            self._world.fail(handle.worker, "crash")
            return
        self._lab.do(_perform(handle, op))
        handle.position += 1
        if not replays:
            self._edit_note(run, at, op)
            self._record_reply(run, at, op)
            run.journalled += 1

    def _act_in_vain(self, handle: Handle, op: Op) -> None:
        """Who lost the turn writes nothing; what it knows of the journal it may still read."""
        if handle.position < handle.recorded:
            op = handle.run.script[handle.position]
            self._lab.do(_perform(handle, op))
            handle.position += 1
            return
        try:
            self._lab.do(_perform(handle, op))
        except LostOwnership:
            return
        raise AssertionError(
            f"{handle.worker.name} lost {handle.run.event_id}, and its {op.act} was accepted"
        )

    def _edit_note(self, run: Run, at: int, op: Op) -> None:
        if op.act not in ("set", "remove") or at in run.receipts:
            return
        run.receipts[at] = (op.act, op.key)
        self._edits += 1
        if op.act == "remove":
            run.book.notes.pop(op.key, None)
        else:
            expires = None if op.expires_in is None else self._world.now + op.expires_in
            run.book.notes[op.key] = Note(op.text, expires, self._edits)

    def _record_reply(self, run: Run, at: int, op: Op) -> None:
        if op.act not in ("reply", "elsewhere"):
            return
        whole, texts = f"{run.run_id}:{at}:0", op.text.split("|")
        reply = Reply(run, whole, op.act == "reply", self._world.now)
        several = len(texts) > 1
        reply.chunks = [
            Chunk(f"{whole}:{n}" if several else whole, reply, text) for n, text in enumerate(texts)
        ]
        run.replies.append(reply)
        self._world.sending.queue(reply)
        if reply.recalled:
            run.book.items.append(Item(run.generation, run, self._world.now, reply.text, reply=reply))

    def repeat_a_note_edit(self, handle: Handle, which: int) -> None:
        """The same operation once more, with another text: it has happened, and happens no second time."""
        run = handle.run
        at = sorted(run.receipts)[which % len(run.receipts)]
        scope = self._lab.scope_of(handle.claimed)
        receipt = self._lab.do(self._lab.notes.set(scope, (at, 0), "k", self._world.text()))
        if run.holder is handle:
            assert isinstance(receipt, Receipt), receipt
            observed.same("the receipt", (receipt.act, receipt.key), run.receipts[at])
        else:
            assert not isinstance(receipt, Receipt), f"a stale note edit was accepted: {receipt}"

    def settle(self, handle: Handle, how: str) -> None:
        """The turn ends, or is given back."""
        run, worker = handle.run, handle.worker
        settling = worker.settlements.settle(Settlement(handle.claimed, ENDINGS[how]))
        worker.handles.remove(handle)
        if run.holder is not handle:
            with pytest.raises(LostOwnership):
                self._lab.do(settling)
            return
        self._lab.do(settling)
        run.holder = None
        if how in ("retry", "release"):
            run.due = self._world.now + (1.0 if how == "retry" else 0.0)
            return
        if how == "denied":
            for item in run.book.items:
                if item.run is run and item.kind == "input":
                    item.withheld = True
        self._world.end(run, "failed" if how == "denied" else how)


async def _perform(handle: Handle, op: Op) -> None:
    """What the agent's code does."""
    turn = handle.turn
    match op.act:
        case "reply":
            await turn.reply(op.text)
        case "elsewhere":
            await turn.emit(turn.event.channel, "another room", op.text)
        case "set":
            await turn.set_note(
                op.key, op.text, None if op.expires_in is None else timedelta(hours=op.expires_in)
            )
        case "remove":
            await turn.remove_note(op.key)
