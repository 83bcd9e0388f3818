"""The machine: it does to the product and to the model what may happen to a conversation, in any order.

Places in rules are numbers, counted among what there is: a rule with nothing to act on does not run. The last
arrived event is number 0, the one before it 1, and so on.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Final
from uuid import UUID

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from schemas.event import Event
from schemas.run import RunStatus
from tests.model import observed
from tests.model.expected import RESERVED_FOR, RUNS_KEPT, Book, Chunk, Item, Note, Op, Reply, Run, abandon
from tests.model.laboratory import Handle, Laboratory, Worker
from tests.model.sending import Sending
from tests.support.events import an_event
from workers.admission.policy import Admitted, Duplicate
from workers.agents.errors import LostOwnership
from workers.memory.notes import Receipt
from workers.operations import conversations, runs
from workers.operations.errors import ActRefused
from workers.turns.policy import Ended, LetGo, TryAgain
from workers.turns.settle import Settlement

PLACES: Final = {
    "private": ("lab", "a", "room", "direct"),
    "group": ("lab", "a", "room", "group"),
    "elsewhere": ("blind", "b", "room", "direct"),
}
"""Three conversations: two of one account and chat that differ in their audience alone, and one of another channel."""

PLACE: Final = st.sampled_from(["private", "private", "group", "elsewhere"])
FAR: Final = st.sampled_from(["sent", "sent", "ends", "acts", "acts"])
SMALL: Final = st.integers(0, 7)
OPS: Final = st.one_of(
    st.builds(Op, st.just("reply"), st.sampled_from(["{}", "{}|{}"])),
    st.builds(Op, st.just("set"), st.just("{}"), st.sampled_from("kl"), st.sampled_from([None, 12.0])),
    st.builds(Op, st.just("reply"), st.just("{}")),
    st.builds(Op, st.just("remove"), st.just(""), st.sampled_from("kl")),
    st.builds(Op, st.just("elsewhere"), st.just("{}")),
)


class Crash(Exception):
    """The process ends at this point."""


class ConversationMemory(RuleBasedStateMachine):
    """Set `laboratory` before it runs."""

    laboratory: ClassVar[Laboratory]

    def __init__(self) -> None:
        super().__init__()
        self.lab = self.laboratory
        self.lab.fresh()
        self.now = 0.0
        self.numbers = 0
        self.edits = 0
        self.books = {name: Book(name) for name in PLACES}
        self.events: list[tuple[Book, Event]] = []
        self.runs: list[Run] = []
        self.reserved: dict[tuple[str, str], Run] = {}
        self.workers: list[Worker] = [self.lab.hire(), self.lab.hire()]
        self.sending = Sending(self.lab, self.runs)

    def teardown(self) -> None:
        self.lab.fresh()

    # Intake and admission

    @rule(place=PLACE, long=st.sampled_from([False, False, False, True]))
    def publish(self, place: str, long: bool) -> None:
        """An event waits in Kafka; nothing of it is known to the database."""
        channel, account, chat, audience = PLACES[place]
        text = self._text() + "x" * 80 * long
        event = an_event(
            event_id=f"event-{len(self.events)}", channel=channel, account=account, chat=chat,
            audience=audience, text=text,
        )  # fmt: skip
        self.events.append((self.books[place], event))
        note(f"{event.event_id} of {place} says {text}")

    @precondition(lambda self: self.events)
    @rule(which=SMALL, agents=st.sampled_from([("helper",), ("twin",), ("helper", "twin")]))
    def admit(self, which: int, agents: tuple[str, ...]) -> None:
        """Intake reads an event, perhaps not for the first time."""
        book, event = self.events[-1 - which % len(self.events)]
        for agent in agents:
            outcome = self.lab.do(self.lab.admit(agent, event))
            known = self.reserved.get((agent, event.event_id))
            if known is not None:
                observed.same("a redelivery", outcome, Duplicate(known.run_id))
            else:
                assert isinstance(outcome, Admitted), f"{event.event_id} is new, and was answered {outcome}"
                self._queue(book, event, agent, outcome.run_id)

    def _queue(self, book: Book, event: Event, agent: str, run_id: UUID) -> None:
        run = Run(
            run_id, agent, event.event_id, event.text, book, book.generation,
            due=self.now, reserved_until=self.now + RESERVED_FOR,
        )  # fmt: skip
        self.reserved[agent, event.event_id] = run
        self.runs.append(run)
        book.runs.append(run)
        book.queue.append(run)
        if book.lane_id is None:
            book.lane_id = self.lab.do(self._lane_of(run))

    @rule(place=PLACE, agents=st.sampled_from([("helper",), ("helper",), ("helper", "twin")]))
    def arrive(self, place: str, agents: tuple[str, ...]) -> None:
        """An event is published and admitted."""
        self.publish(place, long=False)
        self.admit(0, agents)

    @rule(place=PLACE, who=SMALL, ops=st.lists(OPS, min_size=1, max_size=3), far=FAR)
    def talk(self, place: str, who: int, ops: list[Op], far: str) -> None:
        """Ordinary life, as far as what happened before lets it go: an event, its turn, its end, its replies sent."""
        self.arrive(place, ("helper",))
        self.claim(who, ("/".join(PLACES[place][:2]),))
        owner = self.books[place].owner
        if owner is None or owner.holder not in self._handles():
            return
        handle = owner.holder
        for op in [*owner.script[handle.position :], *ops]:
            self._go_on(handle, op, dies=False)
        if far == "acts":
            return
        self._settle(handle, "succeeded")
        if far == "ends":
            return
        self.send(who)
        while held := self._held():
            self.sending.answer(*held[0], "accept", self.now)

    async def _lane_of(self, run: Run) -> int:
        row = await self.lab.database.fetchrow("select lane_id from runs where id = $1", run.run_id)
        assert row is not None
        return int(row["lane_id"])

    # Turns

    @precondition(lambda self: any(book.queue for book in self.books.values()))
    @rule(who=SMALL, places=st.sampled_from([("lab/a",), ("blind/b",), ("lab/a", "blind/b")]))
    def claim(self, who: int, places: tuple[str, ...]) -> None:
        """A worker looks for due conversations."""
        worker = self._living(who)
        wanted = [book for book in self.books.values() if "/".join(PLACES[book.name][:2]) in places]
        claimable = {id(book): book.may_be_claimed(self.now) for book in wanted}
        heads = {id(book): book.queue[0] for book in wanted if book.queue}
        self._begin(worker, places, anew=False)
        for _ in range(3):
            left = [b for b in wanted if claimable[id(b)] == "yes" and heads[id(b)].holder is None]
            if not left or any(run.crashes > 3 for run in heads.values()):
                return
            self._begin(worker, places, anew=True)
        raise AssertionError(f"{left[0].name} is due and nobody can claim it")

    def _begin(self, worker: Worker, places: tuple[str, ...], *, anew: bool) -> None:
        by_id = {run.run_id: run for run in self.runs}
        for claimed in self.lab.do(self.lab.claim(worker, places, anew=anew)):
            run = by_id[claimed.own.run_id]
            book, resumed = run.book, run.snapshot is not None
            assert book.may_be_claimed(self.now) != "no", f"{run.event_id} is claimed, and may not be"
            handle = self.lab.do(self.lab.begin(worker, run, claimed))
            book.begin(run, handle, self.now)
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
        row = self.lab.do(observed.turn_of(self.lab.database, run))
        assert row is not None
        if not resumed:
            run.frozen = row["snapshot"]
        observed.same("the snapshot", row["snapshot"], run.frozen)
        observed.same("steps that the new owner knows", handle.recorded, run.journalled)

    @precondition(lambda self: any(handle.run.holder is not handle for handle in self._handles()))
    @rule(which=SMALL, op=OPS)
    def act_late(self, which: int, op: Op) -> None:
        """An agent whose turn was taken over goes on."""
        late = [handle for handle in self._handles() if handle.run.holder is not handle]
        self._go_on(late[which % len(late)], op, dies=False)

    @precondition(lambda self: self._handles())
    @rule(which=SMALL, op=OPS, dies=st.sampled_from([False, False, False, True]))
    def act(self, which: int, op: Op, dies: bool) -> None:
        """An agent goes on; where it was before, it does the same again. It may die before its journal commits."""
        self._go_on(self._handle(which), op, dies=dies)

    def _go_on(self, handle: Handle, op: Op, *, dies: bool) -> None:
        run, at = handle.run, handle.position
        if run.holder is not handle:
            self._act_in_vain(handle, self._fill(op))
            return
        if at < len(run.script):
            op = run.script[at]
        else:
            op = self._fill(op)
            run.script.append(op)
        replays = at < run.journalled
        if dies and not replays:
            handle.worker.faults.fail("journal.before_commit", Crash())
            try:
                self.lab.do(_perform(handle, op))
            except Crash:
                pass
            else:
                raise AssertionError("it was to die at the commit of its journal")
            self._edit_note(run, at, op)
            self._lose(handle.worker)
            return
        self.lab.do(_perform(handle, op))
        handle.position += 1
        if not replays:
            self._edit_note(run, at, op)
            self._record_reply(run, at, op)
            run.journalled += 1

    def _act_in_vain(self, handle: Handle, op: Op) -> None:
        """Who lost the turn writes nothing; what it knows of the journal it may still read."""
        if handle.position < handle.recorded:
            op = handle.run.script[handle.position]
            self.lab.do(_perform(handle, op))
            handle.position += 1
            return
        try:
            self.lab.do(_perform(handle, op))
        except LostOwnership:
            return
        raise AssertionError(f"{handle.worker.name} lost {handle.run.event_id}, and its {op.act} was accepted")

    def _edit_note(self, run: Run, at: int, op: Op) -> None:
        if op.act not in ("set", "remove") or at in run.receipts:
            return
        run.receipts[at] = (op.act, op.key)
        self.edits += 1
        if op.act == "remove":
            run.book.notes.pop(op.key, None)
        else:
            expires = None if op.expires_in is None else self.now + op.expires_in
            run.book.notes[op.key] = Note(op.text, expires, self.edits)

    def _record_reply(self, run: Run, at: int, op: Op) -> None:
        if op.act not in ("reply", "elsewhere"):
            return
        whole, texts = f"{run.run_id}:{at}:0", op.text.split("|")
        reply = Reply(run, whole, op.act == "reply", self.now)
        several = len(texts) > 1
        reply.chunks = [
            Chunk(f"{whole}:{n}" if several else whole, reply, text) for n, text in enumerate(texts)
        ]
        run.replies.append(reply)
        self.sending.queue(reply)
        if reply.recalled:
            run.book.items.append(Item(run.generation, run, self.now, reply.text, reply=reply))

    @precondition(lambda self: any(handle.run.receipts for handle in self._handles()))
    @rule(which=SMALL, again=SMALL)
    def repeat_a_note_edit(self, which: int, again: int) -> None:
        """The same operation once more, with another text: it has happened, and happens no second time."""
        known = [handle for handle in self._handles() if handle.run.receipts]
        handle = known[which % len(known)]
        run = handle.run
        at = sorted(run.receipts)[again % len(run.receipts)]
        scope = self.lab.scope_of(handle.claimed)
        receipt = self.lab.do(self.lab.notes.set(scope, (at, 0), "k", self._text()))
        if run.holder is handle:
            assert isinstance(receipt, Receipt), receipt
            observed.same("the receipt", (receipt.act, receipt.key), run.receipts[at])
        else:
            assert not isinstance(receipt, Receipt), f"a stale note edit was accepted: {receipt}"

    @precondition(lambda self: self._handles())
    @rule(
        which=SMALL,
        how=st.sampled_from(["succeeded", "succeeded", "failed", "denied", "cancelled", "retry", "release"]),
    )
    def settle(self, which: int, how: str) -> None:
        """A turn ends, or is given back."""
        self._settle(self._handle(which), how)

    def _settle(self, handle: Handle, how: str) -> None:
        run, worker = handle.run, handle.worker
        settling = worker.settlements.settle(Settlement(handle.claimed, _ENDINGS[how]))
        worker.handles.remove(handle)
        if run.holder is not handle:
            try:
                self.lab.do(settling)
            except LostOwnership:
                return
            raise AssertionError(f"{worker.name} lost {run.event_id}, and settled it")
        self.lab.do(settling)
        run.holder = None
        if how in ("retry", "release"):
            run.due = self.now + (1.0 if how == "retry" else 0.0)
            return
        if how == "denied":
            for item in run.book.items:
                if item.run is run and item.kind == "input":
                    item.withheld = True
        self._end(run, "failed" if how == "denied" else how)

    def _end(self, run: Run, how: str) -> None:
        run.status, run.ended = how, self.now  # type: ignore[assignment]  # a word of the rules above
        run.holder = None
        run.book.queue.remove(run)
        if run.book.owner is run:
            run.book.owner = None
        if how == "cancelled":
            abandon(run)

    # Crashes and takeovers

    @precondition(lambda self: self._handles())
    @rule(who=SMALL, how=st.sampled_from(["crash", "stall"]))
    def fail(self, who: int, how: str) -> None:
        """A process is gone with all that it had in memory, or stands still and goes on when it was given up."""
        self._fail(self._living(who), how)

    @precondition(lambda self: any(book.owner for book in self.books.values()))
    @rule(which=SMALL, how=st.sampled_from(["crash", "stall"]), who=SMALL)
    def take_over(self, which: int, how: str, who: int) -> None:
        """The worker of a turn fails, another one recovers what it had, and claims it."""
        owned = [book for book in self.books.values() if book.owner is not None]
        book = owned[which % len(owned)]
        if book.owner is not None and book.owner.holder is not None:
            self._fail(book.owner.holder.worker, how)
        self.recover(who)
        self.claim(who, ("/".join(PLACES[book.name][:2]),))

    def _fail(self, worker: Worker, how: str) -> None:
        if worker not in self.workers:
            return
        if how == "crash":
            self._lose(worker)
        else:
            worker.renews = False
            self._staff()

    def _lose(self, worker: Worker) -> None:
        self.lab.crash(worker)
        self.workers.remove(worker)
        self._staff()

    def _staff(self) -> None:
        while len(self._all_living()) < 2:
            self.workers.append(self.lab.hire())

    @precondition(lambda self: any(not worker.renews for worker in self.lab.workers))
    @rule(who=SMALL)
    def recover(self, who: int) -> None:
        """Leases run out, and a worker takes over what was owned under them."""
        self.lab.do(self.lab.lapse())
        self.lab.do(self._living(who).recovery.run_once())
        for run in self.runs:
            if run.holder is not None and not run.holder.worker.renews:
                run.holder, run.due = None, self.now
                run.crashes += 1

    # Operators

    @precondition(lambda self: self.runs)
    @rule(place=PLACE, act=st.sampled_from(["reset", "reset and keep notes", "delete"]))
    def renew(self, place: str, act: str) -> None:
        """Refused while a turn is active, naming it."""
        self._renew(self.books[place], delete=act == "delete", keep_notes=act == "reset and keep notes")

    def _renew(self, book: Book, *, delete: bool, keep_notes: bool) -> None:
        if book.lane_id is None:
            return
        if delete:
            work = conversations.delete(self.lab.database, book.lane_id, "operator")
        else:
            work = conversations.reset(
                self.lab.database, book.lane_id, "operator", keep_notes=keep_notes
            )
        if book.owner is not None:
            try:
                self.lab.do(work)
            except ActRefused as refusal:
                assert str(book.owner.run_id) in str(refusal), "the refusal names the run"
                return
            raise AssertionError(f"{book.name} was changed while {book.owner.event_id} has its turn")
        renewed = self.lab.do(work)
        waiting = list(book.queue)
        book.renew(delete=delete, keep_notes=keep_notes)
        for run in waiting:
            run.ended = self.now
        observed.same("the new generation", renewed.generation, book.generation)
        observed.same("queued runs that were cancelled", renewed.cancelled_runs, len(waiting))

    @precondition(lambda self: any(book.queue for book in self.books.values()))
    @rule(which=SMALL)
    def cancel(self, which: int) -> None:
        """An operator cancels a run: at once where nobody works on it, else its worker is asked."""
        open_runs = [run for run in self.runs if run.status == "open"]
        run = open_runs[which % len(open_runs)]
        [done] = self.lab.do(runs.cancel_runs(self.lab.database, [run.run_id], "operator"))
        observed.same("what became of the cancel", done.outcome, "requested" if run.holder else "cancelled")
        if run.holder is None:
            self._end(run, "cancelled")

    @precondition(lambda self: self.now > 0)
    @rule()
    def prune(self) -> None:
        """Whatever has had its time leaves; what is open stays."""
        self.lab.do(self.lab.sweeper.prune())
        for key, run in list(self.reserved.items()):
            if run.status != "open" and run.reserved_until is not None and run.reserved_until <= self.now:
                del self.reserved[key]
                run.reserved_until = None
        for run in self.runs:
            if run.status == "open":
                continue
            run.receipts.clear()
            sent = not any(reply.open for reply in run.replies)
            old = run.ended is not None and run.ended + RUNS_KEPT <= self.now
            if old and run.reserved_until is None and sent:
                run.pruned = True
        for book in self.books.values():
            for generation in range(book.generation + 1):
                book.trim(generation, self.now, protected=book.owner)

    @precondition(lambda self: self.runs)
    @rule(hours=st.sampled_from([2.0, 2.0, 13.0, 50.0, 73.0, 193.0]))
    def time_passes(self, hours: float) -> None:
        self.lab.do(self.lab.pass_time(hours))
        self.now += hours

    # Deliveries

    @precondition(lambda self: self.sending.waiting)
    @rule(who=SMALL)
    def send(self, who: int) -> None:
        """A worker takes what is due at every address; the channels hold it until they are told to answer."""
        worker = self._living(who)
        if worker.sending is None:
            self.lab.do(self.lab.send(worker))
            self.sending.taken_by(worker, self.now)

    @precondition(lambda self: self._held())
    @rule(which=SMALL, how=st.sampled_from(["accept", "accept", "accept", "lose", "drop", "refuse", "unreachable"]))
    def answer(self, which: int, how: str) -> None:
        """A channel answers, or the answer is lost after the message arrived (`lose`) or did not (`drop`)."""
        held = self._held()
        worker, key = held[which % len(held)]
        self.sending.answer(worker, key, how, self.now)

    @precondition(lambda self: self.sending.in_doubt)
    @rule(who=SMALL)
    def reconcile(self, who: int) -> None:
        """A worker takes sends from the dead, and finds out about what is uncertain."""
        self.sending.reconcile(self._living(who), self.now)

    @invariant()
    def the_database_is_as_the_rules_say(self) -> None:
        found = self.lab.do(observed.look(self.lab.database))
        observed.hold_against(found, list(self.books.values()), self.runs, self.now)

    def _text(self) -> str:
        self.numbers += 1
        return f"text-{self.numbers}."

    def _fill(self, op: Op) -> Op:
        return Op(op.act, "|".join(self._text() for _ in op.text.split("|")), op.key, op.expires_in)

    def _all_living(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.renews]

    def _living(self, which: int) -> Worker:
        living = self._all_living()
        return living[which % len(living)]

    def _handles(self) -> list[Handle]:
        return [handle for worker in self.workers for handle in worker.handles]

    def _handle(self, which: int) -> Handle:
        handles = self._handles()
        return handles[which % len(handles)]

    def _held(self) -> list[tuple[Worker, str]]:
        return [(worker, key) for worker in self.workers for key in worker.waiting]


_ENDINGS: Final = {
    "succeeded": Ended(RunStatus.SUCCEEDED),
    "failed": Ended(RunStatus.FAILED, "it raised"),
    "denied": Ended(RunStatus.FAILED, "recall_denied", withhold_input=True),
    "cancelled": Ended(RunStatus.CANCELLED, "cancelled"),
    "retry": TryAgain(timedelta(hours=1), "busy"),
    "release": LetGo(),
}


async def _perform(handle: Handle, op: Op) -> None:
    """What the agent's code does."""
    turn = handle.turn
    match op.act:
        case "reply":
            await turn.reply(op.text)
        case "elsewhere":
            await turn.emit(turn.event.channel, "another room", op.text)
        case "set":
            await turn.set_note(op.key, op.text, None if op.expires_in is None else timedelta(hours=op.expires_in))
        case "remove":
            await turn.remove_note(op.key)
