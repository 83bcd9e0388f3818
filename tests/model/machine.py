"""The machine: it does to the product and to the model what may happen to a conversation, in any order.

Places in rules are numbers, counted among what there is: a rule with nothing to act on does not run. The last
published event is number 0, the one before it 1, and so on.
"""

from __future__ import annotations

from typing import ClassVar, Final, get_args

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.model import operating
from tests.model.expected import Book, Op, Run
from tests.model.laboratory import Laboratory
from tests.model.turning import ENDINGS, Turns
from tests.model.world import PLACES, World

PLACE: Final = st.sampled_from(["private", "private", "group", "elsewhere"])
FAR: Final = st.sampled_from(["sent", "sent", "ends", "waits", "acts", "acts"])
SMALL: Final = st.integers(0, 7)
SELDOM: Final = st.sampled_from([False, False, False, True])
OPS: Final = st.one_of(
    st.builds(Op, st.just("reply"), st.sampled_from(["{}", "{}|{}"])),
    st.builds(Op, st.just("set"), st.just("{}"), st.sampled_from("kl"), st.sampled_from([None, 12.0])),
    st.builds(Op, st.just("reply"), st.just("{}")),
    st.builds(Op, st.just("remove"), st.just(""), st.sampled_from("kl")),
    st.builds(Op, st.just("elsewhere"), st.just("{}")),
)
ANSWERS: Final = st.sampled_from(["accept", "accept", "accept", "lose", "drop", "refuse", "unreachable"])


class ConversationMemory(RuleBasedStateMachine):
    """Set `laboratory` before it runs."""

    laboratory: ClassVar[Laboratory]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.laboratory)
        self.turns = Turns(self.world)
        self.pruned_at = 0.0

    def teardown(self) -> None:
        self.laboratory.fresh()

    @rule(place=PLACE, long=SELDOM)
    def publish(self, place: str, long: bool) -> None:
        self.world.publish(place, long=long)

    @precondition(lambda self: self.world.events)
    @rule(which=SMALL, agents=st.sampled_from([("helper",), ("twin",), ("helper", "twin")]))
    def admit(self, which: int, agents: tuple[str, ...]) -> None:
        """Intake reads an event, perhaps not for the first time."""
        events = self.world.events
        for agent in agents:
            self.world.admit(*events[-1 - which % len(events)], agent)

    @rule(place=PLACE, agents=st.sampled_from([("helper",), ("helper",), ("helper", "twin")]))
    def arrive(self, place: str, agents: tuple[str, ...]) -> None:
        """An event is published and admitted."""
        self.publish(place, long=False)
        self.admit(0, agents)

    @rule(place=PLACE, who=SMALL, ops=st.lists(OPS, min_size=1, max_size=3), far=FAR)
    def talk(self, place: str, who: int, ops: list[Op], far: str) -> None:
        """Ordinary life, as far as what happened before lets it go: an event, its turn, its end, its replies sent."""
        self.arrive(place, ("helper",))
        self.turns.claim(self.world.living(who), [_account(place)])
        owner = self.world.books[place].owner
        if owner is None or owner.holder not in self.world.handles():
            return
        handle = owner.holder
        for op in [*owner.script[handle.position :], *ops]:
            self.turns.go_on(handle, op, dies=False)
        if far == "acts":
            return
        self.turns.settle(handle, "succeeded")
        if far == "waits":
            self.time_passes(2.0)
        elif far == "sent":
            self.world.send(self.world.living(who))
            while held := self.world.held():
                self.world.sending.answer(*held[0], "accept", self.world.now)

    @precondition(lambda self: self._open_runs())
    @rule(who=SMALL, accounts=st.sampled_from([["lab/a"], ["blind/b"], ["lab/a", "blind/b"]]))
    def claim(self, who: int, accounts: list[str]) -> None:
        self.turns.claim(self.world.living(who), accounts)

    @precondition(lambda self: self.world.handles())
    @rule(which=SMALL, op=OPS, dies=SELDOM)
    def act(self, which: int, op: Op, dies: bool) -> None:
        handles = self.world.handles()
        self.turns.go_on(handles[which % len(handles)], op, dies=dies)

    @precondition(lambda self: self.world.handles(late=True))
    @rule(which=SMALL, op=OPS)
    def act_late(self, which: int, op: Op) -> None:
        """An agent whose turn was taken over goes on."""
        late = self.world.handles(late=True)
        self.turns.go_on(late[which % len(late)], op, dies=False)

    @precondition(lambda self: any(handle.run.receipts for handle in self.world.handles()))
    @rule(which=SMALL, again=SMALL)
    def repeat_a_note_edit(self, which: int, again: int) -> None:
        known = [handle for handle in self.world.handles() if handle.run.receipts]
        self.turns.repeat_a_note_edit(known[which % len(known)], again)

    @precondition(lambda self: self.world.handles())
    @rule(which=SMALL, how=st.sampled_from(["succeeded", *ENDINGS]))
    def settle(self, which: int, how: str) -> None:
        handles = self.world.handles()
        self.turns.settle(handles[which % len(handles)], how)

    @precondition(lambda self: self.world.handles())
    @rule(who=SMALL, how=st.sampled_from(["crash", "stall"]))
    def fail(self, who: int, how: str) -> None:
        self.world.fail(self.world.living(who), how)

    @precondition(lambda self: any(not worker.renews for worker in self.laboratory.workers))
    @rule(who=SMALL)
    def recover(self, who: int) -> None:
        self.world.recover(self.world.living(who))

    @precondition(lambda self: self._owned())
    @rule(which=SMALL, how=st.sampled_from(["crash", "stall", "stall"]), who=SMALL, op=OPS)
    def take_over(self, which: int, how: str, who: int, op: Op) -> None:
        """The worker of a turn fails, another one recovers what it had and claims it; who only stood still goes on."""
        book = self._owned()[which % len(self._owned())]
        late = None if book.owner is None else book.owner.holder
        if late is not None:
            self.world.fail(late.worker, how)
        self.world.recover(self.world.living(who))
        self.turns.claim(self.world.living(who), [_account(book.name)])
        if late in self.world.handles(late=True):
            self.turns.go_on(late, op, dies=False)

    @precondition(lambda self: self.world.runs)
    @rule(place=PLACE, act=st.sampled_from(get_args(operating.Act)))
    def renew(self, place: str, act: operating.Act) -> None:
        operating.renew(self.world, self.world.books[place], act)

    @precondition(lambda self: self._open_runs())
    @rule(which=SMALL)
    def cancel(self, which: int) -> None:
        found = self._open_runs()
        operating.cancel(self.world, found[which % len(found)])

    @precondition(lambda self: self.world.now > self.pruned_at)
    @rule()
    def prune(self) -> None:
        operating.prune(self.world)
        self.pruned_at = self.world.now

    @precondition(lambda self: self.world.runs)
    @rule(hours=st.sampled_from([2.0, 2.0, 13.0, 50.0, 73.0, 193.0]))
    def time_passes(self, hours: float) -> None:
        self.world.pass_time(hours)

    @precondition(lambda self: self.world.sending.waiting)
    @rule(who=SMALL)
    def send(self, who: int) -> None:
        self.world.send(self.world.living(who))

    @precondition(lambda self: self.world.held())
    @rule(which=SMALL, how=ANSWERS)
    def answer(self, which: int, how: str) -> None:
        """A channel answers, or the answer is lost after the message arrived (`lose`) or did not (`drop`)."""
        held = self.world.held()
        self.world.sending.answer(*held[which % len(held)], how, self.world.now)

    @precondition(lambda self: self.world.sending.in_doubt)
    @rule(who=SMALL)
    def reconcile(self, who: int) -> None:
        """A worker takes sends from the dead, and finds out about what is uncertain."""
        self.world.sending.reconcile(self.world.living(who), self.world.now)

    @invariant()
    def the_database_is_as_the_rules_say(self) -> None:
        self.world.compare()

    def _owned(self) -> list[Book]:
        return [book for book in self.world.books.values() if book.owner is not None]

    def _open_runs(self) -> list[Run]:
        return [run for run in self.world.runs if run.status == "open"]


def _account(place: str) -> str:
    channel, account, *_ = PLACES[place]
    return f"{channel}/{account}"
