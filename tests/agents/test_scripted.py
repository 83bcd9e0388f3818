"""The scripted helper keeps what it is asked to and answers only from what it is shown."""

from datetime import UTC, datetime

from tests.agents.doubles import JournalDouble, a_turn, an_event
from tests.memory.desk import a_desk
from workers.agents.agent import Agent
from workers.agents.runner import run_agent
from workers.agents.scripted import scripted_helper
from workers.memory import store
from workers.memory.access import Allow
from workers.memory.limits import Limits
from workers.memory.recall import select
from workers.memory.snapshot import Exchange, NoteEntry, Snapshot

NOW = datetime(2031, 3, 10, tzinfo=UTC)
HELPER = Agent("helper", runs=scripted_helper(), conversation=True)


async def say(text: str, snapshot: Snapshot | None = None) -> list[str]:
    journal = JournalDouble()
    await run_agent(HELPER, a_turn(HELPER, journal, event=an_event(text), snapshot=snapshot))
    return journal.sent


async def test_it_answers_from_a_note_and_not_without_it() -> None:
    note = NoteEntry("answers", "I prefer short answers", NOW)

    assert await say("What answer style do I prefer?", Snapshot(notes=(note,))) == [
        'You told me: "I prefer short answers"'
    ]
    [blank] = await say("What answer style do I prefer?", Snapshot())
    assert "short" not in blank


async def test_it_answers_from_an_earlier_message_and_not_without_it() -> None:
    past = Snapshot(history=(Exchange("user", "My dog is called Rex"), Exchange("assistant", "Nice")))

    assert await say("What is my dog called?", past) == ['You told me: "My dog is called Rex"']
    [blank] = await say("What is my dog called?", Snapshot(omitted_items=2))
    assert "Rex" not in blank


async def test_anything_else_is_echoed_with_what_it_can_see() -> None:
    past = Snapshot(history=(Exchange("user", "a"), Exchange("assistant", "b"), Exchange("user", "c")))

    assert await say("nice weather", past) == ["You said: nice weather (earlier messages I can see: 2)"]
    assert await say("nice weather") == ["You said: nice weather (earlier messages I can see: 0)"]


async def test_without_a_conversation_it_says_that_it_cannot_remember() -> None:
    [answer] = await say("please remember that I like tea")

    assert "no conversation memory" in answer


async def test_it_saves_a_note_and_the_next_run_answers_from_it(database_url: str) -> None:
    async def allow() -> Allow:
        return Allow()

    async with a_desk(database_url) as desk:
        scope = await desk.a_lane()
        journal = JournalDouble()
        event = an_event("Please remember that I prefer short answers.")
        turn = a_turn(
            HELPER,
            journal,
            event=event,
            snapshot=Snapshot(),
            notes=desk.notes.open(scope, allow),
            run_id=scope.run_id,
        )
        await run_agent(HELPER, turn)
        async with desk.db.transaction() as tx:
            notes = await store.read_notes(tx, [scope.lane_id], [0])

    assert journal.sent == ["I will remember that I prefer short answers."]
    snapshot = select([], notes[scope.lane_id], Limits())
    assert await say("What answer style do I prefer?", snapshot) == ['You told me: "I prefer short answers"']
