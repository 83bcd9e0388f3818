"""Replies as memory sees them: pending before they are sent, recalled once they are, and nothing else of a run."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from schemas.event import Attachment
from tests.agents.doubles import StrictModel, user_texts
from tests.conversations.racing import claim_one, says
from tests.support import delivery
from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from tests.support.waiting import eventually
from workers.agents.tools import reply_tools
from workers.agents.turn import Turn
from workers.channels.lab import LabChannel
from workers.channels.port import Capability, Outcome, Outgoing
from workers.operations.conversations import inspect
from workers.operations.runs import cancel_runs

RECALL_WAIT = timedelta(seconds=2)


class Held(LabChannel):
    """A transport that has accepted nothing until `go` is set."""

    def __init__(self) -> None:
        super().__init__(capability=Capability.LOOK_UP_DEFINITE)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        self.asked.set()
        await self.go.wait()
        return await super().send(outgoing, timeout)


async def answers(turn: Turn) -> None:
    """Repeats what was said."""
    await turn.reply(f"re: {turn.event.text}")


async def answers_and_waits(turn: Turn) -> None:
    """Replies, and never ends."""
    await turn.reply("before the end")
    await asyncio.Event().wait()


HELPER = an_agent("helper", runs=answers, conversation=True)
WAITER = an_agent("helper", runs=answers_and_waits, conversation=True)


async def reply_item(desk: Desk) -> tuple[str, str]:
    """Status of the one reply's item, and state of its delivery."""
    [row] = await desk.rows(
        "select i.status, d.state from items i join deliveries d on d.reply_key = i.reply_key"
        " where i.kind = 'reply'"
    )
    return row["status"], row["state"]


async def replied(desk: Desk) -> bool:
    return bool(await desk.value("select count(*) from deliveries"))


@pytest.mark.rule("CM-33", "CM-34")
async def test_a_reply_is_pending_when_the_transport_is_called_and_is_recalled_only_when_sent(
    database_url: str,
) -> None:
    channel = Held()
    async with a_desk(database_url, HELPER) as desk, delivery.a_desk(database_url, channel) as out:
        [run_id] = await desk.admit("helper", says("first"))
        await desk.work()
        lane_id = (await desk.lane_of(run_id))["id"]
        assert await reply_item(desk) == ("pending", "pending")

        sending = asyncio.ensure_future(out.send())
        await channel.asked.wait()
        assert await reply_item(desk) == ("pending", "sending")
        inspected = await inspect(desk.database, lane_id)
        assert inspected is not None
        assert "pending" in [item.status for item in inspected.items]

        await desk.admit("helper", says("second"))
        assert list((await desk.claims.claim(desk.session.id, [])).turns) == [], "it waits for the reply"
        await shift_clock(desk.database, RECALL_WAIT)
        second = await claim_one(desk)
        assert second.snapshot is not None
        assert [each.text for each in second.snapshot.history] == ["first"]
        assert second.snapshot.omitted_items == 1

        channel.go.set()
        await sending
        assert await reply_item(desk) == ("sent", "sent")


@pytest.mark.rule("CM-34", "CM-30")
async def test_a_reply_in_chunks_is_recalled_whole_after_the_last_of_them(database_url: str) -> None:
    def split(channel: str, text: str) -> tuple[str, ...]:
        return tuple(text[at : at + 4] for at in range(0, len(text), 4))

    async with (
        a_desk(database_url, HELPER, split=split) as desk,
        delivery.a_desk(database_url, LabChannel()) as out,
    ):
        await desk.admit("helper", says("long text"))
        await desk.work()
        keys = await desk.rows("select id from deliveries order by position")
        assert len(keys) == 4
        for row in keys[:-1]:
            await desk.database.execute(
                "update deliveries set state = 'sent', finished_at = parley_now() where id = $1", row["id"]
            )
        assert await desk.value("select status from items where kind = 'reply'") == "pending"

        await out.send()

        await desk.admit("helper", says("next"))
        turn = await claim_one(desk)
        assert turn.snapshot is not None
        assert [each.text for each in turn.snapshot.history] == ["long text", "re: long text"]
        assert turn.snapshot.omitted_items == 0


@pytest.mark.rule("CM-36", "CM-35")
async def test_a_send_that_completes_after_its_run_was_cancelled_writes_no_receipt_of_success(
    database_url: str,
) -> None:
    channel = Held()
    async with a_desk(database_url, WAITER) as desk, delivery.a_desk(database_url, channel) as out:
        [run_id] = await desk.admit("helper", says("first"))
        await desk.loop.run_once()
        await eventually("it replied", lambda: replied(desk))
        sending = asyncio.ensure_future(out.send())
        await channel.asked.wait()

        await cancel_runs(desk.database, [run_id], "ann")
        async with desk.running():
            await eventually("it is cancelled", lambda: is_over(desk, "cancelled"))
        channel.go.set()
        await sending

        assert channel.received == ["before the end"]
        assert (await reply_item(desk))[0] != "sent"
        assert not await desk.value("select bool_or(not late and outcome = 'sent') from delivery_attempts")
        await out.reconciler.run_once()
        await shift_clock(desk.database, timedelta(hours=1))
        await out.reconciler.run_once()
        assert await reply_item(desk) in [("sent", "sent"), ("unknown", "unknown")]
        assert len(channel.attempts) == 1


async def is_over(desk: Desk, status: str) -> bool:
    return bool(await desk.value("select bool_and(status = $1) from runs", status))


@pytest.mark.rule("CM-37", "CM-33")
async def test_an_interrupted_turn_still_owns_its_conversation_and_its_send_stays_pending(
    database_url: str,
) -> None:
    async with (
        a_desk(database_url, WAITER, lease_for=timedelta(seconds=2)) as one,
        a_desk(database_url, lease_for=timedelta(seconds=2)) as other,
        delivery.a_desk(database_url, LabChannel()) as out,
    ):
        [run_id, _] = await one.admit("helper", says("first"), says("second"))
        await one.loop.run_once()
        await eventually("it replied", lambda: replied(one))
        await one.lapse()

        async def interrupted() -> bool:
            await other.recovery.run_once()
            turn = await other.turn_of(run_id)
            return turn is not None and turn["session_id"] is None

        await eventually("it is interrupted", interrupted)
        assert await one.status(run_id) == "interrupted"
        assert (await one.lane_of(run_id))["owner_run"] == run_id
        assert await reply_item(one) == ("pending", "pending")
        [head] = await one.rows("select run_id from turns")
        assert head["run_id"] == run_id, "the next event waits behind it"

        await out.send()
        assert await reply_item(one) == ("sent", "sent")


@pytest.mark.rule("CM-31")
async def test_a_bound_run_that_only_ends_with_text_is_counted_and_an_unbound_one_is_not(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def mute() -> Any:
        model = StrictModel(ModelResponse([TextPart("nobody gets this")]))
        return ModelAgent(model.model, deps_type=Turn, toolsets=[reply_tools()])

    bound = an_agent("bound", runs=mute(), conversation=True)
    async with a_desk(database_url, bound, an_agent("unbound", runs=mute())) as desk:
        await desk.admit("bound", an_event(chat="c"))
        await desk.admit("unbound", an_event(chat="c"))
        await desk.work()

        counter = desk.metrics.silent_memory_runs
        assert counter.labels("bound")._value.get() == 1
        assert counter.labels("unbound")._value.get() == 0
        assert await desk.replies() == []
        assert await desk.rows("select kind, body from items") == [{"kind": "input", "body": "hello"}]
    assert capsys.readouterr().out.count("turn.ended_without_reply") == 1


@pytest.mark.rule("CM-32", "CM-30")
async def test_of_a_run_only_its_input_and_its_replies_are_recalled(database_url: str) -> None:
    model = StrictModel(
        ModelResponse(
            [
                ThinkingPart("secret thoughts"),
                TextPart("words beside the calls"),
                ToolCallPart("reply", {"text": "the reply"}, "c1"),
                ToolCallPart("search", {"query": "secret query"}, "c2"),
                ToolCallPart("tell", {}, "c3"),
            ]
        ),
        ModelResponse([TextPart("secret final words")]),
    )
    runs = ModelAgent(model.model, deps_type=Turn, toolsets=[reply_tools()])

    @runs.tool_plain
    async def search(query: str) -> str:
        return f"secret result of {query}"

    @runs.tool
    async def tell(ctx: RunContext[Turn]) -> str:
        turn = ctx.deps
        await turn.emit("lab", "approvals", "secret approval")
        await turn.emit("lab", turn.event.address, "secret account", account="other")
        return "told"

    attachment = Attachment(
        id="a", name="secret.png", media_type="image/png", url="https://files.invalid/secret"
    )
    helper = an_agent("helper", runs=runs, conversation=True)
    async with a_desk(database_url, helper) as desk, delivery.a_desk(database_url, LabChannel()) as out:
        await desk.admit("helper", an_event(chat="c", text="look at this", attachments=(attachment,)))
        await desk.work()
        await out.send()
        await desk.admit("helper", an_event(chat="c", text="and now?"))
        await desk.work()

    last = model.seen[-1]
    assert user_texts(last) == ["look at this", "and now?"]
    assert [part.content for m in last if isinstance(m, ModelResponse) for part in m.parts] == [  # type: ignore[union-attr]  # texts only
        "the reply"
    ]
    assert "secret" not in str(last)
