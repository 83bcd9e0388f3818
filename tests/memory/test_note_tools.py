"""The memory tools as a model meets them, on the real engine: what it is told, what is written, what is stopped."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import structlog
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import ModelMessage, ModelResponse

from schemas.run import new_uuid7
from tests.agents.doubles import JournalDouble, StrictModel, calls, tool_results
from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.running import counted
from workers.agents.agent import Agent
from workers.agents.errors import LostOwnership, NoConversation, NotesDenied, TooManyCalls
from workers.agents.steps import Steps
from workers.agents.tools import memory_tools, reply_tools
from workers.agents.turn import Turn
from workers.agents.unbound import unbound_candidate
from workers.memory.access import Access, Allow, Deny
from workers.operations import conversations

FOUR = ("memory_list", "memory_get", "memory_set", "memory_remove")
ALL_FOUR = calls(
    ("memory_list", {}),
    ("memory_get", {"key": "k"}),
    ("memory_set", {"key": "k", "text": "other"}),
    ("memory_remove", {"key": "k"}),
)


def with_memory(model: StrictModel, **changes: Any) -> Agent:
    runs = ModelAgent(model.model, deps_type=Turn, toolsets=[reply_tools(), memory_tools()])
    return an_agent(**{"runs": runs, "conversation": "memory", **changes})


def told(model: StrictModel, request: int = -1) -> list[Any]:
    """What the tools answered, as the model was shown it in one of its requests."""
    return [part.content for part in tool_results(model.seen[request][-1:])]


async def saved(desk: Desk) -> dict[str, str]:
    return {row["key"]: row["body"] for row in await desk.rows("select key, body from notes order by key")}


async def due_now(desk: Desk) -> None:
    for table in ("runs", "ready"):
        await desk.database.execute(f"update {table} set due_at = parley_now()")


class Answers:
    """A policy that lets everything in but note calls, which get these answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Access] = []

    async def __call__(self, access: Access) -> Allow | Deny:
        if access.purpose != "notes":
            return Allow()
        self.asked.append(access)
        answer = self.answers.pop(0) if self.answers else Allow()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.rule("CM-27", "CM-28")
async def test_a_caller_who_is_put_out_in_the_middle_of_a_turn_reads_and_writes_nothing_more(
    database_url: str,
) -> None:
    model = StrictModel(calls(("memory_set", {"key": "k", "text": "planted"})), ALL_FOUR)
    policy = Answers(Allow(), *[Deny("left the group")] * 4)
    async with a_desk(database_url, with_memory(model), authorize=policy) as desk:
        [run_id] = await desk.admit("echo", an_event(chat="room"))
        with structlog.testing.capture_logs() as logs:
            await desk.work()

        assert [told(model, 1)[0]["saved"], *told(model)] == [True] + [
            "not allowed: the notes of this conversation are closed to this caller"
        ] * 4
        assert "planted" not in str(told(model))
        assert "left the group" not in str(model.seen)
        assert await saved(desk) == {"k": "planted"}
        assert await desk.value("select count(*) from note_operations") == 1
        denied = [line for line in logs if line["event"] == "notes.denied"]
        assert sorted(line["act"] for line in denied) == ["get", "list", "remove", "set"]
        assert {line["run_id"] for line in denied} == {str(run_id)}
        metrics = desk.metrics.render().decode()
        assert counted(metrics, "parley_policy_decisions_total", outcome="notes_denied") == 4
        assert {(a.agent, a.identity.memory_key, a.identity.chat) for a in policy.asked} == {
            ("echo", "memory", "room")
        }


@pytest.mark.rule("CM-27")
@pytest.mark.parametrize("failure", [RuntimeError("policy"), TimeoutError(), None, True], ids=repr)
async def test_a_policy_that_fails_permits_nothing_and_the_turn_is_tried_again(
    database_url: str, failure: object
) -> None:
    model = StrictModel(ALL_FOUR)
    policy = Answers(*[failure] * 4)
    async with a_desk(database_url, with_memory(model), authorize=policy) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.work()

        run = await desk.run(run_id)
        assert (run["status"], run["reason"]) == ("queued", "PolicyUnavailable")
        assert (await saved(desk), await desk.value("select count(*) from note_operations")) == ({}, 0)
        policy.answers.clear()
        await due_now(desk)
        await desk.work()
        assert await desk.status(run_id) == "succeeded"
        assert len(told(model)) == 4


@pytest.mark.rule("CM-27")
async def test_a_function_agent_that_is_denied_its_notes_ends_with_that_reason(database_url: str) -> None:
    caught: list[str] = []

    async def runs(turn: Turn) -> None:
        for use in uses_of(turn):
            try:
                await use()
            except NotesDenied as denied:
                caught.append(denied.reason)
        await turn.set_note("k", "v")

    policy = Answers(*[Deny("no")] * 5)
    async with a_desk(database_url, an_agent(runs=runs, conversation=True), authorize=policy) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.work()

        run = await desk.run(run_id)
        assert (run["status"], run["reason"]) == ("failed", "NotesDenied")
        assert caught == ["no"] * 4
        assert await saved(desk) == {}
        assert not await desk.value(
            "select count(*) from run_steps where name in ('set_note', 'remove_note')"
        )


def uses_of(turn: Turn) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: turn.set_note("k", "v"),
        lambda: turn.get_note("k"),
        turn.list_notes,
        lambda: turn.remove_note("k"),
    ]


async def unbound_run(desk: Desk) -> UUID:
    """A run of the desk's agent that no conversation is bound to, as a hand-off makes one."""
    asked = unbound_candidate(desk.agents["echo"], an_event(), new_uuid7(), None)
    await desk.admission.admit([asked])
    return asked.run_id


@pytest.mark.rule("CM-7", "CM-5", "CM-6")
async def test_outside_a_bound_run_every_memory_tool_fails_and_says_so_to_the_model(
    database_url: str,
) -> None:
    model = StrictModel(ALL_FOUR, calls(("reply", {"text": "without memory"})))
    async with a_desk(database_url, with_memory(model)) as desk:
        run_id = await unbound_run(desk)
        await desk.work()

        assert model.tools_offered == [{"reply"}] * 3
        results = tool_results(model.seen[1][-1:])
        assert [part.outcome for part in results] == ["failed"] * 4
        assert {str(part.content) for part in results} == {
            "this run has no conversation memory: notes tools work only in a conversation"
        }
        assert await desk.status(run_id) == "succeeded"
        assert await desk.replies() == ["without memory"]
        assert await saved(desk) == {}
        assert await desk.value("select count(*) from conversations") == 0


@pytest.mark.rule("CM-6", "CM-7")
async def test_one_function_agent_works_bound_and_unbound(database_url: str) -> None:
    seen: list[tuple[bool, int]] = []

    async def runs(turn: Turn) -> None:
        refused = 0
        for use in uses_of(turn):
            try:
                await use()
            except NoConversation:
                refused += 1
        seen.append((turn.has_conversation, refused))

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        free = await unbound_run(desk)
        await desk.work()
        [bound] = await desk.admit("echo", an_event())
        await desk.work()

        assert seen == [(False, 4), (True, 0)]
        assert {await desk.status(run_id) for run_id in (free, bound)} == {"succeeded"}
        assert await desk.value("select count(*) from note_operations where run_id = $1", free) == 0


@pytest.mark.rule("CM-5")
async def test_an_agent_whose_author_added_no_memory_tools_has_none_in_a_bound_run(database_url: str) -> None:
    model = StrictModel(calls(("memory_set", {"key": "k", "text": "v"})))
    runs = ModelAgent(model.model, deps_type=Turn, toolsets=[reply_tools()])
    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event())
        await desk.work()

        assert model.tools_offered == [{"reply"}] * 2
        assert "Unknown tool name" in str(model.seen[-1][-1])
        assert await saved(desk) == {}


@pytest.mark.rule("CM-5", "CM-57")
async def test_the_four_tools_do_what_they_say_and_edits_answer_with_metadata(database_url: str) -> None:
    model = StrictModel(
        calls(("memory_set", {"key": "style", "text": "short", "expires_in": 60})),
        calls(("memory_get", {"key": "style"}), ("memory_get", {"key": "none"}), ("memory_list", {})),
        calls(("memory_remove", {"key": "style"}), ("memory_remove", {"key": "none"})),
    )
    async with a_desk(database_url, with_memory(model)) as desk:
        await desk.admit("echo", an_event())
        await desk.work()

        assert set(model.tools_offered[0]) == {"reply", *FOUR}
        [written] = told(model, 1)
        assert set(written) == {"saved", "key", "created", "body_bytes", "updated_at", "expires_at"}
        assert (written["saved"], written["created"], written["body_bytes"]) == (True, True, 5)
        found, missing, listed = told(model, 2)
        assert (found["found"], found["text"], found["expires_at"]) == (True, "short", written["expires_at"])
        assert missing == {"found": False, "key": "none"}
        assert ([note["key"] for note in listed["notes"]], listed["next_cursor"]) == (["style"], None)
        assert told(model, 3) == [{"removed": True, "key": "style"}, {"removed": False, "key": "none"}]
        assert await saved(desk) == {}


@pytest.mark.rule("CM-54", "CM-78")
async def test_a_model_at_100_notes_is_told_what_it_can_do_and_does_it(database_url: str) -> None:
    model = StrictModel(
        calls(
            ("memory_set", {"key": "one more", "text": "v"}), ("memory_set", {"key": "k007", "text": "new"})
        ),
        calls(("memory_remove", {"key": "k003"})),
        calls(("memory_set", {"key": "one more", "text": "v"})),
    )
    async with a_desk(database_url, with_memory(model)) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.database.execute(
            "insert into notes (lane_id, generation, key, body, body_bytes)"
            " select lane_id, 0, 'k' || to_char(n, 'FM000'), 'v', 1 from runs, generate_series(0, 99) n where id = $1",
            run_id,
        )
        await desk.work()

        refused, replaced = told(model, 1)
        assert "100 notes" in refused
        assert "memory_remove" in refused
        assert replaced["created"] is False
        assert told(model)[0]["saved"] is True
        notes = await saved(desk)
        assert (len(notes), notes["k007"], "k003" in notes, notes["one more"]) == (100, "new", False, "v")


@pytest.mark.rule("CM-52", "CM-53", "CM-78")
async def test_a_model_is_told_in_words_what_is_wrong_with_a_note(database_url: str) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"key": "", "text": "v"}, "the key is empty"),
        ({"key": "😀" * 64 + "k", "text": "v"}, "longer than 128"),
        ({"key": "a\nb", "text": "v"}, "control characters"),
        ({"key": "k", "text": "é" * 1024 + "a"}, "longer than 2048 bytes"),
        ({"key": "k", "text": "v", "expires_in": 0}, "positive and at most ten years"),
        ({"key": "k", "text": "v", "expires_in": 1e300}, "positive and at most ten years"),
    ]
    model = StrictModel(
        calls(*(("memory_set", args) for args, _ in wrong)), calls(("memory_list", {"cursor": "k"}))
    )
    async with a_desk(database_url, with_memory(model)) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.work()

        for said, (_, words) in zip(told(model, 1), wrong, strict=True):
            assert said.startswith("not done: ")
            assert words in said
        assert "list from the start" in told(model)[0]
        assert (await saved(desk), await desk.status(run_id)) == ({}, "succeeded")


@pytest.mark.rule("CM-55", "CM-78")
async def test_a_model_pages_through_all_notes(database_url: str) -> None:
    pages: list[Any] = []

    def goes_on(messages: list[ModelMessage]) -> ModelResponse:
        pages.append(tool_results(messages)[-1].content)
        cursor = pages[-1]["next_cursor"]
        return (
            calls(("memory_list", {"cursor": cursor, "limit": 500}))
            if cursor
            else calls(("reply", {"text": "."}))
        )

    model = StrictModel(calls(("memory_list", {})), goes_on, goes_on)
    async with a_desk(database_url, with_memory(model)) as desk:
        [run_id] = await desk.admit("echo", an_event())
        await desk.database.execute(
            "insert into notes (lane_id, generation, key, body, body_bytes)"
            " select lane_id, 0, 'k' || to_char(n, 'FM000'), 'v', 1 from runs, generate_series(0, 99) n where id = $1",
            run_id,
        )
        await desk.work()

        assert [len(page["notes"]) for page in pages] == [50, 50]
        assert [note["key"] for page in pages for note in page["notes"]] == [f"k{n:03}" for n in range(100)]


@pytest.mark.rule("CM-56")
async def test_an_expired_note_is_gone_from_every_read_of_the_engine_before_any_sweep(
    database_url: str,
) -> None:
    model = StrictModel(
        calls(
            ("memory_set", {"key": "otp", "text": "1234", "expires_in": 2}),
            ("memory_set", {"key": "style", "text": "short"}),
        ),
    )
    async with a_desk(database_url, with_memory(model)) as desk:
        [run_id] = await desk.admit("echo", an_event(chat="c"))
        await desk.work()
        await shift_clock(desk.database, timedelta(seconds=3))
        model.answers[:] = [calls(("memory_get", {"key": "otp"}), ("memory_list", {}))]
        [second] = await desk.admit("echo", an_event(chat="c"))
        await desk.loop.run_once()
        turn = await desk.turn_of(second)
        await desk.loop.idle()

        missing, listed = told(model)
        assert missing == {"found": False, "key": "otp"}
        assert [note["key"] for note in listed["notes"]] == ["style"]
        assert turn is not None
        assert b"style" in turn["snapshot"]
        assert b"otp" not in turn["snapshot"]
        assert "1234" not in str(model.seen[-1])
        inspected = await conversations.inspect(desk.database, (await desk.lane_of(run_id))["id"])
        assert inspected is not None
        assert (inspected.note_count, [note.key for note in inspected.notes]) == (1, ["style"])
        assert await desk.value("select count(*) from notes") == 2, "nothing has swept"


@pytest.mark.rule("CM-6")
async def test_what_a_turn_left_running_has_no_notes_after_its_end(database_url: str) -> None:
    turns: list[Turn] = []

    async def runs(turn: Turn) -> None:
        turns.append(turn)

    async with a_desk(database_url, an_agent(runs=runs, conversation=True)) as desk:
        await desk.admit("echo", an_event())
        await desk.work()

        for use in uses_of(turns[0]):
            with pytest.raises(LostOwnership):
                await use()
        assert await saved(desk) == {}


@pytest.mark.rule("CM-74")
async def test_no_two_edits_of_a_run_ever_stand_at_one_place() -> None:
    steps = Steps(new_uuid7(), "1", "fail", JournalDouble())
    places = set()
    for call in (1, 2, 3):
        with steps.enter((0, call)) as scope:
            places |= {scope.place() for _ in range(999)}
            with pytest.raises(TooManyCalls):
                scope.place()

    assert len(places) == 3 * 999


@pytest.mark.rule("CM-74", "CM-54")
async def test_edits_side_by_side_in_one_turn_each_happen(database_url: str) -> None:
    model = StrictModel(calls(*(("memory_set", {"key": f"k{n}", "text": f"v{n}"}) for n in range(20))))

    async def runs(turn: Turn) -> None:
        await asyncio.gather(*(turn.set_note(f"k{n}", f"v{n}") for n in range(20)))

    for agent in (with_memory(model), an_agent(runs=runs, conversation="memory")):
        async with a_desk(database_url, agent) as desk:
            await desk.admit("echo", an_event())
            await desk.work()

            assert await saved(desk) == {f"k{n}": f"v{n}" for n in range(20)}
            assert await desk.value("select count(distinct (step, call)) from note_operations") == 20
            for table in ("note_operations", "notes"):
                await desk.database.execute(f"delete from {table}")
