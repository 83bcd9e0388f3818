"""What happens to replies: the machine's rules of delivery, and which outcomes the model lets be."""

from __future__ import annotations

from typing import Final

from tests.model import observed
from tests.model.expected import SEND_HELD_FOR, Chunk, ChunkState, Reply
from tests.model.laboratory import Laboratory, Worker
from workers.channels.lab import Fault

FAULTS: Final[dict[str, Fault | None]] = {
    "accept": None,
    "lose": Fault("drop", accepts=True),
    "drop": Fault("drop"),
    "refuse": Fault("refuse"),
    "unreachable": Fault("unreachable"),
}


class Sending:
    """Every chunk in the order of its address, and what the workers do with it."""

    def __init__(self, laboratory: Laboratory) -> None:
        self._lab = laboratory
        self._chunks: dict[str, Chunk] = {}
        self._taken: set[tuple[str, int]] = set()

    @property
    def waiting(self) -> bool:
        """Whether something is to be sent."""
        return any(chunk.state == "pending" for chunk in self._chunks.values())

    @property
    def in_doubt(self) -> bool:
        """Whether something is being sent, or may have arrived."""
        return any(chunk.state in ("sending", "uncertain") for chunk in self._chunks.values())

    def queue(self, reply: Reply) -> None:
        self._chunks.update({chunk.key: chunk for chunk in reply.chunks})

    def taken_by(self, worker: Worker, now: float) -> None:
        """What the worker's channels hold now is being sent: it was pending, and next at its address."""
        for outgoing in worker.waiting:
            if (outgoing.key, outgoing.attempt) in self._taken:
                continue
            self._taken.add((outgoing.key, outgoing.attempt))
            chunk = self._chunks[outgoing.key]
            observed.same(f"what {worker.name} sends, {chunk.text!r}", chunk.state, "pending")
            for earlier in self._before(chunk):
                stuck = any(other.state == "uncertain" for other in earlier.reply.chunks)
                assert stuck or earlier.final, f"{chunk.text!r} overtakes {earlier.text!r}"
            chunk.state, chunk.sender, chunk.sent_from = "sending", worker, now

    def _before(self, chunk: Chunk) -> list[Chunk]:
        keys = list(self._chunks)
        here = self._place(chunk)
        return [
            earlier
            for earlier in (self._chunks[key] for key in keys[: keys.index(chunk.key)])
            if self._place(earlier) == here
        ]

    @staticmethod
    def _place(chunk: Chunk) -> tuple[str, bool]:
        room = "elsewhere" if chunk.reply.run.book.name == "elsewhere" else "room"
        return room, chunk.reply.recalled

    def answer(self, worker: Worker, key: str, how: str, now: float) -> None:
        """The answer counts while the send is this worker's and its run was not cancelled; else nothing moves."""
        self._lab.do(self._lab.answer(worker, key, FAULTS[how]))
        chunk = self._chunks[key]
        if chunk.state == "sending" and chunk.sender is worker and not chunk.cancelled:
            match how:
                case "accept":
                    chunk.state = "sent"
                case "refuse":
                    chunk.fail()
                case "unreachable":
                    self._not_sent(chunk)
                case _:
                    chunk.state, chunk.doubted = "uncertain", True
        self.taken_by(worker, now)

    def _not_sent(self, chunk: Chunk) -> None:
        """It is tried again, until its tries or its day are used up: which of both is read."""
        found = self._lab.do(observed.look(self._lab.database)).deliveries[chunk.key]["state"]
        if found == "pending":
            chunk.state = "pending"
        else:
            chunk.fail()

    def reconcile(self, worker: Worker, now: float) -> None:
        """One round without sends. What changed must be a legal end, and for a reason."""
        self._lab.do(worker.reconciler.take_from_the_dead())
        self._lab.do(worker.reconciler.resolve_uncertain())
        found = self._lab.do(observed.look(self._lab.database)).deliveries
        for chunk in self._chunks.values():
            row = found.get(chunk.key)
            if row is None or chunk.final or row["state"] == chunk.state:
                continue
            if chunk.state == "sending":
                self._taken_from_the_dead(chunk, now)
            if row["state"] != chunk.state and not chunk.final:
                self._resolved(chunk, row["state"])

    def _taken_from_the_dead(self, chunk: Chunk, now: float) -> None:
        sender = chunk.sender
        assert isinstance(sender, Worker)
        abandoned = chunk.cancelled or not sender.renews or chunk.sent_from + SEND_HELD_FOR <= now
        assert abandoned, f"{chunk.text!r} was taken from a living worker"
        chunk.state, chunk.doubted = "uncertain", True

    def _resolved(self, chunk: Chunk, state: ChunkState) -> None:
        observed.same(f"{chunk.text!r} before it was resolved as {state}", chunk.state, "uncertain")
        arrived = self._lab.peer_holds(chunk.key)
        blind = chunk.reply.run.book.name == "elsewhere"
        absent = not arrived and not blind
        match state:
            case "sent":
                assert arrived, f"{chunk.text!r} counts as sent, and nobody received it"
                chunk.state = "sent"
            case "pending":
                observed.same(f"{chunk.text!r} cancelled, and to be sent again", chunk.cancelled, False)
                assert absent, f"{chunk.text!r} is to be sent again, and may have arrived"
                chunk.state, chunk.doubted = "pending", False
            case "unknown":
                assert blind or not arrived, f"{chunk.text!r} could be asked about, and is unknown"
                chunk.state = "unknown"
            case "failed":
                assert absent, f"{chunk.text!r} counts as failed, and may have arrived"
                chunk.state, chunk.doubted = "failed", False
                chunk.reply.fail_rest(chunk)
            case other:
                raise AssertionError(f"{chunk.text!r} became {other} while it was uncertain")
