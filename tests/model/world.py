"""Both sides at once: the laboratory, the model of what it must hold, and the workers between them."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from hypothesis import note

from schemas.event import Event
from tests.model import observed
from tests.model.expected import RESERVED_FOR, Book, Op, Run, abandon
from tests.model.laboratory import Handle, Laboratory, Worker
from tests.model.sending import Sending
from tests.support.events import an_event
from workers.admission.policy import Admitted, Duplicate

PLACES: Final = {
    "private": ("lab", "a", "room", "direct"),
    "group": ("lab", "a", "room", "group"),
    "elsewhere": ("blind", "b", "room", "direct"),
}
"""Three conversations: two of one account and chat that differ in their audience alone, and one of another channel."""


class World:
    """What happened so far. Its methods do one thing to both sides."""

    def __init__(self, laboratory: Laboratory) -> None:
        self.lab = laboratory
        self.lab.fresh()
        self.now = 0.0
        self.books = {name: Book(name) for name in PLACES}
        self.events: list[tuple[Book, Event]] = []
        self.runs: list[Run] = []
        self.reserved: dict[tuple[str, str], Run] = {}
        self.workers: list[Worker] = []
        self.sending = Sending(laboratory)
        self._numbers = 0
        self.staff()

    def text(self) -> str:
        """A text that nothing else holds, and that is no part of another."""
        self._numbers += 1
        return f"text-{self._numbers}."

    def fill(self, op: Op) -> Op:
        """`op` with texts of its own."""
        return Op(op.act, "|".join(self.text() for _ in op.text.split("|")), op.key, op.expires_in)

    def publish(self, place: str, *, long: bool) -> None:
        """An event waits in Kafka; nothing of it is known to the database."""
        channel, account, chat, audience = PLACES[place]
        text = self.text() + "x" * 80 * long
        event = an_event(
            event_id=f"event-{len(self.events)}",
            channel=channel,
            account=account,
            chat=chat,
            audience=audience,
            text=text,
        )
        self.events.append((self.books[place], event))
        note(f"{event.event_id} of {place} says {text}")

    def admit(self, book: Book, event: Event, agent: str) -> None:
        """Admitted once for the life of its reservation, into the generation that the conversation has now."""
        outcome = self.lab.do(self.lab.admit(agent, event))
        known = self.reserved.get((agent, event.event_id))
        if known is not None:
            observed.same("a redelivery", outcome, Duplicate(known.run_id))
        else:
            assert isinstance(outcome, Admitted), f"{event.event_id} is new, and was answered {outcome}"
            self._queue(book, event, agent, outcome.run_id)

    def _queue(self, book: Book, event: Event, agent: str, run_id: UUID) -> None:
        run = Run(run_id, agent, event.event_id, event.text, book, book.generation, due=self.now)
        run.reserved_until = self.now + RESERVED_FOR
        self.reserved[agent, event.event_id] = run
        self.runs.append(run)
        book.runs.append(run)
        book.queue.append(run)
        # What was deleted may be said again: by an event that no reservation knows any more, or for another agent.
        book.gone.discard(event.text)
        book.forgotten.discard(event.text)
        if book.lane_id is None:
            book.lane_id = self.lab.do(self._lane_of(run))

    async def _lane_of(self, run: Run) -> int:
        row = await self.lab.database.fetchrow("select lane_id from runs where id = $1", run.run_id)
        assert row is not None
        return int(row["lane_id"])

    def end(self, run: Run, how: str) -> None:
        """The model's side of a run's end."""
        run.status, run.ended = how, self.now  # type: ignore[assignment]  # one of the words of an end
        run.holder = None
        run.book.queue.remove(run)
        if run.book.owner is run:
            run.book.owner = None
        if how == "cancelled":
            abandon(run)

    def pass_time(self, hours: float) -> None:
        """Longer than any send may take: those that are held end first, without an answer."""
        for worker, key in self.held():
            self.sending.answer(worker, key, "drop", self.now)
        self.lab.do(self.lab.pass_time(hours))
        self.now += hours

    def send(self, worker: Worker) -> None:
        """The worker takes what is due at every address; its channels hold it until they are told to answer."""
        if worker.sending is None:
            self.lab.do(self.lab.send(worker))
            self.sending.taken_by(worker, self.now)

    def fail(self, worker: Worker, how: str) -> None:
        """The process is gone with its memory (`crash`), or renews no more and goes on with what it has (`stall`)."""
        if worker not in self.workers:
            return
        worker.renews = False
        if how == "crash":
            self.lab.crash(worker)
            self.workers.remove(worker)
        self.staff()

    def recover(self, worker: Worker) -> None:
        """Leases run out, and `worker` takes over what was owned under them."""
        self.lab.do(self.lab.lapse())
        self.lab.do(worker.recovery.run_once())
        for run in self.runs:
            if run.holder is not None and not run.holder.worker.renews:
                run.holder, run.due = None, self.now
                run.crashes += 1

    def staff(self) -> None:
        """Two living workers at least."""
        while sum(worker.renews for worker in self.workers) < 2:
            self.workers.append(self.lab.hire())

    def living(self, which: int) -> Worker:
        living = [worker for worker in self.workers if worker.renews]
        return living[which % len(living)]

    def handles(self, *, late: bool = False) -> list[Handle]:
        """The turns that workers have in memory; `late`: those that were taken over."""
        found = [handle for worker in self.workers for handle in worker.handles]
        return [handle for handle in found if handle.run.holder is not handle] if late else found

    def held(self) -> list[tuple[Worker, str]]:
        """The messages that channels hold, by worker and key."""
        return [(worker, held.key) for worker in self.workers for held in worker.waiting]

    def compare(self) -> None:
        """Raise AssertionError at the first thing in the database that is not as the model says."""
        found = self.lab.do(observed.look(self.lab.database))
        observed.hold_against(found, list(self.books.values()), self.runs, self.now)
