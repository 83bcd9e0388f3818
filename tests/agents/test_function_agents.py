"""A plain function is an agent: what it did is journalled once, and replayed after a crash."""

import asyncio
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel

from tests.agents.doubles import Crashed, JournalDouble, a_turn, an_event, run_to_the_end
from workers.agents.agent import Agent
from workers.agents.errors import (
    BadStepName,
    EmptyReply,
    LimitExceeded,
    LostOwnership,
    NestedTooDeep,
    NoText,
    NotJournalable,
    ReplayDiverged,
    ReplyTooLong,
)
from workers.agents.journal import MAX_REPLY_BYTES
from workers.agents.meter import RunLimits
from workers.agents.runner import run_agent
from workers.agents.turn import MAX_STEP_NAME, Turn
from workers.channels.splitting import MAX_CHUNKS, TooManyChunks
from workers.memory.snapshot import Exchange, Snapshot


class Order(BaseModel):
    number: int
    note: str


@dataclass
class Counter:
    calls: int = 0

    def bump(self, *_: Any) -> int:
        self.calls += 1
        return self.calls


async def test_a_reply_is_one_write_that_holds_its_step_and_its_chunks() -> None:
    async def echo(turn: Turn) -> None:
        await turn.reply(turn.event.text)

    journal = JournalDouble()
    agent = Agent("echo", runs=echo)
    await run_agent(agent, a_turn(agent, journal, split=lambda _, text: [text[:2], text[2:]]))

    [(record, emit)] = journal.writes
    assert (record.step, record.call, record.kind, record.state) == (0, 0, "emit", "finished")
    assert emit is not None
    assert (emit.channel, emit.account, emit.address, emit.chunks) == (
        "web",
        "main",
        "room-1",
        ("he", "llo"),
    )


@pytest.mark.rule("EN-22", "EN-30")
@pytest.mark.parametrize("crash_after", range(1, 6))
async def test_a_crash_after_any_commit_repeats_nothing_that_was_committed(crash_after: int) -> None:
    lookups, journal = Counter(), JournalDouble()
    journal.crash_after = crash_after

    async def clerk(turn: Turn) -> None:
        await turn.reply("one moment")
        first = await turn.step("look up", lookups.bump, "a")
        second = await turn.step("look up", lookups.bump, "b")
        await turn.reply(f"{first} and {second}")
        await turn.emit("audit", "desk", "looked up")

    agent = Agent("clerk", runs=clerk)
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    resumed = journal.revived()
    await run_agent(agent, a_turn(agent, resumed))

    assert resumed.sent == ["one moment", "1 and 2", "looked up"]
    assert lookups.calls == 2
    assert len(journal.writes) + len(resumed.writes) == 5


@pytest.mark.rule("EN-22")
async def test_only_the_step_in_flight_repeats() -> None:
    done, journal = Counter(), JournalDouble()
    journal.crash_before = 2

    async def clerk(turn: Turn) -> None:
        await turn.step("first", done.bump)
        await turn.step("second", done.bump)

    agent = Agent("clerk", runs=clerk)
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    assert done.calls == 2
    await run_agent(agent, a_turn(agent, journal.revived()))

    assert done.calls == 3


async def test_steps_side_by_side_keep_their_own_positions() -> None:
    async def wait(number: int) -> int:
        for _ in range(8 - number):
            await asyncio.sleep(0)
        return number

    seen: list[list[int]] = []

    async def fan(turn: Turn) -> None:
        seen.append(await asyncio.gather(*(turn.step("part", wait, number) for number in range(8))))

    agent = Agent("fan", runs=fan)
    journal = await run_to_the_end(agent)
    await run_agent(agent, a_turn(agent, replayed := journal.revived()))

    assert seen == [list(range(8))] * 2
    assert sorted(journal.recorded) == [(number, 0) for number in range(8)]
    assert replayed.writes == []


async def test_what_a_step_calls_is_numbered_below_it_and_is_not_called_again() -> None:
    async def inner(turn: Turn) -> str:
        await turn.reply("working on it")
        return await turn.step("deep", str, 7, returns=str)

    async def outer(turn: Turn) -> None:
        await turn.step("outer", lambda: inner(turn))
        await turn.reply("finished")

    agent = Agent("nested", runs=outer)
    journal = JournalDouble()
    journal.crash_after = 3
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    assert sorted(journal.recorded) == [(0, 0), (0, 1), (0, 2)]
    await run_agent(agent, a_turn(agent, resumed := journal.revived()))

    assert resumed.sent == ["working on it", "finished"]
    assert [at for at, *_ in resumed.log] == [(1, 0)]


async def test_a_third_level_is_refused_by_name() -> None:
    async def third(turn: Turn) -> None:
        await turn.step("one", lambda: turn.step("two", lambda: turn.step("three", int)))

    agent = Agent("deep", runs=third)

    with pytest.raises(NestedTooDeep):
        await run_to_the_end(agent)


async def test_the_effect_id_of_a_step_is_the_same_when_it_repeats() -> None:
    seen: list[str] = []

    async def payer(turn: Turn) -> None:
        await turn.step("pay", lambda: seen.append(turn.effect_id))
        await turn.step("pay", lambda: seen.append(turn.effect_id))

    agent = Agent("payer", runs=payer)
    journal = JournalDouble()
    journal.crash_before = 2
    with pytest.raises(Crashed):
        await run_agent(agent, a_turn(agent, journal))
    await run_agent(agent, a_turn(agent, journal.revived()))

    first, second, again = seen
    assert second == again != first


@pytest.mark.rule("EN-22")
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"version": "2"}, "agent_version"),
        ({"name": "other"}, "name"),
        ({"args": ("b",)}, "arguments"),
    ],
)
async def test_a_replay_that_meets_other_code_stops_or_goes_on_as_the_agent_wants(
    changed: dict[str, Any], what: str
) -> None:
    done = Counter()

    def agent_of(
        version: str = "1", name: str = "work", args: tuple[str, ...] = ("a",), on_change: Any = "fail"
    ) -> Agent:
        async def work(turn: Turn) -> None:
            await turn.step(name, done.bump, *args)
            await turn.reply("done")

        return Agent("worker", runs=work, version=version, on_change=on_change)

    journal = JournalDouble()
    journal.crash_after = 1
    before = agent_of()
    with pytest.raises(Crashed):
        await run_agent(before, a_turn(before, journal))

    stopping = agent_of(**changed)
    with pytest.raises(ReplayDiverged) as diverged:
        await run_agent(stopping, a_turn(stopping, journal.revived()))
    assert diverged.value.what == what
    assert done.calls == 1

    going_on = agent_of(**changed, on_change="continue")
    resumed = journal.revived()
    await run_agent(going_on, a_turn(going_on, resumed))
    assert resumed.sent == ["done"]
    assert done.calls == (2 if what == "name" else 1)


@pytest.mark.rule("EN-30")
async def test_a_reply_that_reads_otherwise_when_repeated_stays_the_first() -> None:
    texts = count(1)

    async def clock(turn: Turn) -> None:
        await turn.reply(f"tick {next(texts)}")

    agent = Agent("clock", runs=clock, on_change="continue")
    journal = await run_to_the_end(agent)
    await run_agent(agent, a_turn(agent, resumed := journal.revived()))

    assert resumed.sent == ["tick 1"]
    assert resumed.writes == []


@pytest.mark.rule("EN-4")
async def test_text_and_values_no_store_can_hold_are_made_storable() -> None:
    async def odd(turn: Turn) -> None:
        value = await turn.step("odd", lambda: {"p95": float("inf"), "a\x00": ["\ud800 ok", float("nan")]})
        assert value == {"p95": None, "a\ufffd": ["\ufffd ok", None]}
        assert await turn.step("literal", lambda: "\\u0000") == "\\u0000"
        await turn.reply("a\x00b \udfff")

    journal = await run_to_the_end(Agent("odd", runs=odd))

    assert journal.sent == ["a\ufffdb \ufffd"]


async def test_a_step_gives_back_the_same_type_live_and_replayed() -> None:
    seen: list[Any] = []

    async def shop(turn: Turn) -> None:
        seen.append(await turn.step("order", lambda: Order(number=3, note="x")))
        seen.append(await turn.step("order", lambda: Order(number=4, note="y"), returns=Order))

    agent = Agent("shop", runs=shop)
    journal = await run_to_the_end(agent)
    await run_agent(agent, a_turn(agent, journal.revived()))

    assert seen == [{"number": 3, "note": "x"}, Order(number=4, note="y")] * 2


async def test_what_is_no_json_is_refused_by_type_and_never_by_its_repr() -> None:
    class Secret:
        def __repr__(self) -> str:
            return "password"

    async def argument(turn: Turn) -> None:
        await turn.step("use", str, Secret())

    async def result(turn: Turn) -> None:
        await turn.step("use", Secret)

    for runs, where in ((argument, "argument"), (result, "result")):
        with pytest.raises(NotJournalable) as refused:
            await run_to_the_end(Agent("secret", runs=runs))
        assert refused.value.where == where
        assert "Secret" in str(refused.value)
        assert "password" not in str(refused.value)


@pytest.mark.rule("EN-29")
@pytest.mark.parametrize("kind", ["steps", "replies"])
async def test_a_run_stops_at_its_limits(kind: str) -> None:
    async def greedy(turn: Turn) -> None:
        for number in range(10):
            await (turn.reply(f"{number}") if kind == "replies" else turn.step("n", int, number))

    agent = Agent("greedy", runs=greedy, limits=RunLimits(steps=3, replies=3))
    journal = JournalDouble()
    with pytest.raises(LimitExceeded) as exceeded:
        await run_agent(agent, a_turn(agent, journal))

    assert (exceeded.value.kind, exceeded.value.limit) == (kind, 3)
    assert len(journal.writes) == 3


@pytest.mark.rule("EN-18")
async def test_lost_ownership_is_reported_even_when_the_agent_swallows_it() -> None:
    async def stubborn(turn: Turn) -> None:
        for text in ("one", "two", "three"):
            try:
                await turn.reply(text)
            except Exception:
                continue

    journal = JournalDouble()
    journal.lost_at = 2
    agent = Agent("stubborn", runs=stubborn)
    with pytest.raises(LostOwnership):
        await run_agent(agent, a_turn(agent, journal))

    assert journal.sent == ["one"]


async def test_nothing_that_an_agent_left_running_can_send_after_its_turn() -> None:
    late: list[asyncio.Task[None]] = []

    async def leaky(turn: Turn) -> None:
        async def later() -> None:
            await released.wait()
            await turn.reply("too late")

        late.append(asyncio.create_task(later()))

    released = asyncio.Event()
    journal = await run_to_the_end(Agent("leaky", runs=leaky))
    released.set()

    with pytest.raises(LostOwnership):
        await late[0]
    assert journal.sent == []


@pytest.mark.rule("CM-30", "CM-32")
async def test_only_what_goes_exactly_where_the_event_came_from_is_recalled() -> None:
    async def herald(turn: Turn) -> None:
        await turn.reply("here")
        await turn.emit("web", turn.event.address, "also here")
        await turn.emit("web", "room-2", "other address")
        await turn.emit("web", turn.event.address, "other account", account="second")
        await turn.emit("mail", turn.event.address, "other channel")

    agent = Agent("herald", runs=herald, conversation=True)
    bound = await run_to_the_end(agent, snapshot=Snapshot())
    unbound = await run_to_the_end(agent)

    assert [bound.emits[at].recalled for at in sorted(bound.emits)] == [True, True, False, False, False]
    assert not any(emit.recalled for emit in unbound.emits.values())


async def test_an_empty_reply_is_refused_before_it_is_journalled() -> None:
    async def mute(turn: Turn) -> None:
        await turn.reply(" \n")

    with pytest.raises(EmptyReply):
        await run_to_the_end(Agent("mute", runs=mute))


@pytest.mark.rule("EN-29")
async def test_a_reply_above_the_bound_is_refused_whole_and_the_run_may_go_on() -> None:
    sizes: list[int] = []

    async def verbose(turn: Turn) -> None:
        await turn.reply("\u00e9" * (MAX_REPLY_BYTES // 2))
        for text in ("\u00e9" * (MAX_REPLY_BYTES // 2) + "z", "z" * (MAX_REPLY_BYTES + 1)):
            with pytest.raises(
                ReplyTooLong, match=f"{MAX_REPLY_BYTES + 1} bytes .* {MAX_REPLY_BYTES}"
            ) as raised:
                await turn.reply(text)
            sizes.append(raised.value.body_bytes)
        await turn.emit("mail", "room-2", "shorter")

    journal = await run_to_the_end(Agent("verbose", runs=verbose, limits=RunLimits(replies=2)))

    assert sizes == [MAX_REPLY_BYTES + 1] * 2
    assert [len(text.encode()) for text in journal.sent] == [MAX_REPLY_BYTES, len("shorter")]
    assert sorted(journal.recorded) == [(0, 0), (1, 0)]


async def test_a_reply_of_too_many_messages_is_refused_also_on_a_channel_that_splits_by_itself() -> None:
    async def verbose(turn: Turn) -> None:
        await turn.reply("z" * MAX_CHUNKS)
        with pytest.raises(TooManyChunks):
            await turn.reply("z" * (MAX_CHUNKS + 1))
        await turn.reply("shorter")

    journal = await run_to_the_end(Agent("verbose", runs=verbose), split=lambda channel, text: tuple(text))

    assert journal.sent == ["z" * MAX_CHUNKS, "shorter"]


async def test_a_reply_that_is_no_text_says_what_it_was() -> None:
    async def forgets(turn: Turn) -> None:
        await turn.reply(None)  # type: ignore[arg-type]  # what an author may do by mistake

    with pytest.raises(NoText, match="must be text, not NoneType"):
        await run_to_the_end(Agent("forgets", runs=forgets))


@pytest.mark.parametrize("name", [None, 7, "", "a\x00b", "a\ud800b", "n" * (MAX_STEP_NAME + 1)])
async def test_a_step_whose_name_no_journal_holds_is_refused_before_it_runs(name: Any) -> None:
    called: list[int] = []

    async def misnames(turn: Turn) -> None:
        with pytest.raises(BadStepName, match="1 to 200 characters"):
            await turn.step(name, called.append, 1)
        await turn.step("n" * MAX_STEP_NAME, called.append, 2)

    journal = await run_to_the_end(Agent("misnames", runs=misnames))

    assert called == [2]
    assert list(journal.recorded) == [(0, 0)]


@pytest.mark.rule("CM-6", "CM-38")
async def test_the_past_is_there_in_a_bound_run_and_cannot_be_changed() -> None:
    snapshot = Snapshot(history=(Exchange("user", "hi"), Exchange("assistant", "hello")))
    seen: list[tuple[bool, tuple[Exchange, ...]]] = []

    async def historian(turn: Turn) -> None:
        seen.append((turn.has_conversation, turn.history))

    agent = Agent("historian", runs=historian, conversation="key")
    await run_to_the_end(agent, snapshot=snapshot)
    await run_to_the_end(agent)

    assert seen == [(True, snapshot.history), (False, ())]
    assert isinstance(seen[0][1], tuple)


def test_a_function_agent_never_imports_a_model_library() -> None:
    program = """
        import asyncio, sys
        from uuid import uuid4
        from datetime import UTC, datetime
        from schemas.event import Event
        from schemas.identity import Principal
        from workers.agents.agent import Agent
        from workers.agents.runner import run_agent
        from workers.agents.turn import Turn

        class Journal:
            recorded = {}
            async def write(self, record, emit=None, hand_off=None):
                print(emit.chunks[0])

        async def echo(turn):
            await turn.reply(turn.event.text)

        event = Event(event_id="e", channel="web", account="a", chat="c", audience="direct", kind="message",
                      principal=Principal("p"), text="hi", occurred_at=datetime.now(UTC))
        agent = Agent("echo", runs=echo)
        turn = Turn(agent=agent, run_id=uuid4(), event=event, principal=event.principal, user=None, snapshot=None,
                    journal=Journal(), split=lambda channel, text: (text,))
        asyncio.run(run_agent(agent, turn))
        print("pydantic_ai" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.split() == ["hi", "False"]


async def test_a_turn_with_one_reply_costs_little_beside_its_commit() -> None:
    class Instant:
        recorded: dict[Any, Any] = {}  # noqa: RUF012 - a double without state

        async def write(self, *_: Any) -> None:
            return None

    async def echo(turn: Turn) -> None:
        await turn.reply(turn.event.text)

    agent, event = Agent("echo", runs=echo), an_event()
    best = timedelta.max
    for _ in range(5):
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(200):
            await run_agent(agent, a_turn(agent, Instant(), event=event))  # type: ignore[arg-type] # a smaller double
        best = min(best, timedelta(seconds=loop.time() - began) / 200)

    assert best < timedelta(microseconds=100)
