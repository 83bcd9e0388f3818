"""Faults of delivery: sent twice after a time-out, too soon after a refusal, for ever when too large, cut in two."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import pytest

from schemas.delivery import DeliveryState
from tests.channels.receiver import Receiver, a_receiver
from tests.support.delivery import Desk, a_conversation, a_desk
from tests.support.events import KEYS, an_agent, an_event
from tests.support.running import Site, a_worker
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite
from workers.agents.turn import Turn
from workers.app import App
from workers.channels.lab import LAB_LIMIT, Fault, LabChannel
from workers.channels.port import Capability
from workers.channels.splitting import size_of
from workers.channels.webhook import WebhookChannel

QUIET = timedelta(seconds=21)
"""Past the lease of a claim (15 s) and the lab's transport time-out."""


async def a_lost_answer(desk: Desk) -> object:
    """Two replies `ok` of one conversation; the second is stored, and its answer never comes."""
    desk.channel.transport_timeout = timedelta(seconds=0.05)
    conversation = await a_conversation(desk.db)
    await desk.reply("ok", conversation=conversation)
    await desk.send()
    [lost] = await desk.reply("ok", conversation=conversation)
    desk.channel.fail_next(Fault("stall", accepts=True))
    await desk.send()
    assert await desk.state_of(lost) is DeliveryState.UNCERTAIN
    return lost


@pytest.mark.parametrize("capability", [Capability.LOOK_UP_DEFINITE, Capability.LOOK_UP_POSITIVE])
async def test_pb_55_a_send_that_timed_out_and_arrived_is_found_by_its_key_and_not_sent_again(
    database_url: str, capability: Capability
) -> None:
    """fazer-ai/agents issue 499: a time-out was taken for a failure, and the channel held two copies."""
    channel = LabChannel(capability=capability, settling_time=timedelta(seconds=2))
    async with a_desk(database_url, channel) as desk:
        lost = await a_lost_answer(desk)
        channel.fail_look_ups(1)
        await desk.reconciler.run_once()
        after_a_failed_question = await desk.row(lost)  # type: ignore[arg-type]  # an id
        for _ in range(3):
            await desk.pass_time(timedelta(seconds=2))
            await desk.reconciler.run_once()
            await desk.send()
        channel.settling_time = timedelta(0)
        await desk.pass_time(QUIET)
        await desk.reconciler.run_once()

        assert after_a_failed_question["state"] == "uncertain"
        assert await desk.states() == ["sent", "sent"]
        assert channel.received == ["ok", "ok"]
        assert len(channel.attempts) == 2
        assert len({message.key for message in channel.messages}) == 2


async def test_pb_55_where_nobody_can_be_asked_it_stays_unknown_for_an_operator(database_url: str) -> None:
    """NousResearch/hermes-agent pull 14071: a copy was sent as a fallback, since nobody could say that it was there."""
    channel = LabChannel(capability=Capability.NONE)
    async with a_desk(database_url, channel) as desk:
        lost = await a_lost_answer(desk)
        for _ in range(5):
            await desk.reconciler.run_once()
            await desk.send()
            await desk.pass_time(timedelta(minutes=10))

        assert (await desk.row(lost))["state"] == "unknown"  # type: ignore[arg-type]  # an id
        assert channel.received == ["ok", "ok"]
        assert len(channel.attempts) == 2


RETRY_AFTER: Mapping[str, Callable[[], str]] = {
    "seconds": lambda: "2",
    "date": lambda: format_datetime(
        datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3), usegmt=True
    ),
}


@pytest.mark.parametrize("form", RETRY_AFTER)
async def test_pb_56_no_request_reaches_a_limited_channel_before_its_time(
    database_url: str, form: str
) -> None:
    """fleetdm/fleet issue 18044, hargata/lubelog pull 1279: a limit was taken for a failure, or asked again at once."""
    async with a_receiver() as limited:
        hook = WebhookChannel("hook", limited.url, KEYS)
        await hook.open()
        async with a_desk(database_url, LabChannel(), others={"hook": hook}) as desk:
            conversation = await a_conversation(desk.db)
            limited.do(429, headers={"retry-after": RETRY_AFTER[form]()})
            replies = [
                await desk.reply(f"r{n}", conversation=conversation, channel="hook", address=f"x{n % 3}")
                for n in range(30)
            ]
            asked, stopped_at = time.monotonic(), len(limited.requests)
            await desk.send()
            stopped_at = len(limited.requests)
            await desk.reply("beside", channel="lab")
            await desk.send()
            assert desk.channel.received == ["beside"]
            waits = await desk.db.fetchrow(
                "select extract(epoch from min(due_at) - parley_now())::float8 from deliveries"
                " where channel = 'hook' and state = 'pending' and failures = 0"
            )
            assert waits is not None

            async def it_goes_on() -> bool:
                await desk.send()
                return len(limited.requests) > stopped_at

            await eventually("it goes on", it_goes_on)
            waited = time.monotonic() - asked
            await eventually("all are sent", partial(all_sent, desk))

            assert waited > (2 if form == "seconds" else 1.9) - 0.2
            assert max([(await desk.row(reply[0]))["failures"] for reply in replies]) == 0
            for address in range(3):
                assert texts_of(limited, f"x{address}") == [f"r{n}" for n in range(address, 30, 3)]
        await hook.close()


async def all_sent(desk: Desk) -> bool:
    await desk.send()
    return set(await desk.states()) == {"sent"}


def texts_of(receiver: Receiver, address: str) -> list[str]:
    bodies = [json.loads(body) for body in receiver.stored.values()]
    return [body["text"] for body in bodies if body["address"] == address]


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [({}, 0.5, 1.0), ({"retry-after": "99999"}, 3590.0, 3600.0), ({"retry-after": "soon"}, 0.5, 1.0)],
    ids=["absent", "absurd", "no number"],
)
async def test_pb_56_an_absent_or_absurd_time_is_a_backoff_or_the_documented_most(
    database_url: str, header: Mapping[str, str], least: float, most: float
) -> None:
    """marimo-team/marimohub pull 207: what a channel says of its time was believed without any bound."""
    async with a_receiver() as limited:
        hook = WebhookChannel("hook", limited.url, KEYS)
        await hook.open()
        async with a_desk(database_url, LabChannel(), others={"hook": hook}) as desk:
            limited.do(429, headers=header)
            [reply] = await desk.reply("r", channel="hook")
            await desk.send()
            first = await desk.row(reply)
            wait = await desk.db.fetchrow(
                "select extract(epoch from due_at - parley_now())::float8 from deliveries where id = $1",
                reply,
            )
            assert wait is not None
            await desk.send()
            too_soon = len(limited.requests)
            await desk.pass_time(timedelta(seconds=wait[0] + 0.1))
            await desk.send()

            assert least <= wait[0] <= most
            assert (first["state"], first["failures"]) == ("pending", 0)
            assert (too_soon, len(limited.requests)) == (1, 2)
            assert await desk.state_of(reply) is DeliveryState.SENT
        await hook.close()


@pytest.mark.kafka
async def test_pb_57_a_message_that_its_channel_finds_too_large_ends_with_that_reason(site: Site) -> None:
    """pydantic/pydantic-ai issue 7164, temporalio/sdk-python issue 1285: too large is for good, and was tried again."""

    class Shrunk(LabChannel):
        """Cuts nothing, and takes less than it said."""

        def split(self, text: str) -> tuple[str, ...]:
            return (text,)

    lab = Shrunk(keys=KEYS)

    async def runs(turn: Turn) -> None:
        await turn.reply(turn.event.text)

    app = App(
        "tested", agents=[an_agent(runs=runs, concurrency_key=lambda event: event.chat)], channels=[lab]
    )
    async with a_worker(site, app):
        await site.publish(
            an_event(chat="c1", text="z" * 100),
            an_event(chat="c1", text="next"),
            an_event(chat="c2", text="beside"),
        )
        await site.settled(3)

    assert sorted(lab.received) == ["beside", "next"]
    assert len(lab.attempts) == 3
    failed = await site.rows("select state, reason, attempt from deliveries where state <> 'sent'")
    assert failed == [{"state": "failed", "reason": "text too long", "attempt": 1}]


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
SMILES = "\U0001f600" * 50
FAMILIES = "a" * 35 + FAMILY + "b" * 20


@pytest.mark.kafka
@pytest.mark.parametrize("text", [SMILES, FAMILIES], ids=["smiles", "a family across the cut"])
async def test_pb_60_a_long_reply_is_cut_in_the_channels_unit_and_goes_on_behind_a_crash(
    make_site: MakeSite, text: str
) -> None:
    """NousResearch/hermes-agent issue 55844: a limit in UTF-16 units was used on code points, and no chunk arrived."""
    async with make_site(app="tests.cases.saying:saying", lease_seconds=1.0) as site:
        site.start(name="others", roles=("intake", "turns"))
        await site.publish(an_event(text=text))
        await site.start(roles=("delivery",), dies_at="before request#2").died()
        before = site.texts()
        site.start(name="last", roles=("delivery",))
        await site.settled(1)

        chunks = site.texts()
        assert len(before) == 1
        assert chunks[:1] == before
        assert "".join(chunks) == text
        assert [size_of(chunk, "utf16") <= LAB_LIMIT for chunk in chunks] == [True] * len(chunks)
        assert len(chunks) == (3 if text is SMILES else 2)
        assert all(chunk.encode("utf-8") for chunk in chunks)
        assert sum(FAMILY in chunk for chunk in chunks) == (text is FAMILIES)
        keys = [message.key for message in site.received()]
        assert keys == sorted(set(keys), key=keys.index)
        assert [key.rpartition(":")[2] for key in keys] == [str(n) for n in range(len(chunks))]
