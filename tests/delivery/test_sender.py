"""Claiming, sending and writing receipts."""

import asyncio
from datetime import timedelta

import pytest

from schemas.delivery import DeliveryState
from tests.support.delivery import Desk, a_conversation, a_desk, a_reply
from tests.support.waiting import eventually
from workers.channels.lab import Fault, LabChannel
from workers.channels.port import Capability
from workers.delivery.loops.sender import SendLimits
from workers.delivery.policy import CHUNK_FAILED, EXHAUSTED
from workers.turns.store import SessionGone


@pytest.mark.rule("EN-30")
async def test_a_reply_journalled_twice_is_sent_once_and_keeps_the_first_body(desk: Desk) -> None:
    conversation = await a_conversation(desk.db)
    first = await desk.journal(a_reply(conversation, "first"))

    again = await desk.journal(a_reply(conversation, "second"))
    await desk.send()

    assert again == first == await desk.addresses()
    assert desk.channel.received == ["first"]
    assert await desk.states() == ["sent"]


@pytest.mark.rule("EN-31")
async def test_replies_of_one_address_go_one_by_one_in_their_order(desk: Desk) -> None:
    conversation = await a_conversation(desk.db)
    for number in range(20):
        await desk.reply(f"r{number}", conversation=conversation)

    sends = await desk.send()

    assert sends == 20
    assert desk.channel.received == [f"r{number}" for number in range(20)]


@pytest.mark.rule("EN-31")
async def test_the_transcript_follows_the_receipt(desk: Desk) -> None:
    await desk.reply("one", "two")
    row = await desk.db.fetchrow("select status, body from items")
    assert row is not None
    assert tuple(row) == ("pending", "onetwo")

    await desk.send()

    row = await desk.db.fetchrow("select status from items")
    assert row is not None
    assert row["status"] == "sent"


@pytest.mark.rule("EN-31")
async def test_an_address_that_waits_delays_no_other(desk: Desk) -> None:
    conversation = await a_conversation(desk.db)
    slow = await desk.reply("slow", conversation=conversation, address="slow")
    desk.channel.fail_next(Fault("rate_limit", retry_after=timedelta(seconds=60)))
    await desk.send()
    await desk.reply("slow 2", conversation=conversation, address="slow")
    await desk.reply("quick", conversation=conversation, address="quick")

    await desk.send()
    assert desk.channel.received == ["quick"]

    await desk.pass_time(timedelta(seconds=40))
    await desk.send()
    assert desk.channel.received == ["quick"]
    await desk.pass_time(timedelta(seconds=21))
    await desk.send()
    assert desk.channel.received == ["quick", "slow", "slow 2"]
    assert (await desk.row(slow[0]))["failures"] == 0


@pytest.mark.rule("EN-31")
@pytest.mark.parametrize(("scope", "waiting"), [("account", "a"), ("channel", "")])
async def test_a_wait_is_honoured_in_its_declared_scope(database_url: str, scope: str, waiting: str) -> None:
    other = LabChannel("other")
    async with a_desk(database_url, others={"other": other}) as desk:
        desk.channel.fail_next(Fault("rate_limit", retry_after=timedelta(seconds=3), scope=scope))  # type: ignore[arg-type]
        await desk.reply("1", address="x")
        await desk.send()
        await desk.reply("2", address="y")
        await desk.reply("3", address="z", account="b")
        await desk.reply("4", address="x", channel="other")

        await desk.send()

        assert other.received == ["4"]
        assert desk.channel.received == (["3"] if waiting else [])
        await desk.pass_time(timedelta(seconds=3.1))
        await desk.send()
        assert sorted(desk.channel.received) == ["1", "2", "3"]


@pytest.mark.rule("EN-31")
async def test_an_absurd_retry_after_is_capped_at_an_hour(desk: Desk) -> None:
    await desk.reply("r")
    desk.channel.fail_next(Fault("rate_limit", retry_after=timedelta(seconds=99_999)))
    await desk.send()

    await desk.pass_time(timedelta(hours=1, seconds=1))
    await desk.send()

    assert desk.channel.received == ["r"]


@pytest.mark.rule("EN-31")
async def test_rate_limits_never_use_up_the_retries_but_age_does(desk: Desk) -> None:
    [delivery] = await desk.reply("r")
    desk.channel.fail_next(*[Fault("rate_limit", retry_after=timedelta(seconds=1))] * 30)
    for _ in range(20):
        await desk.send()
        await desk.pass_time(timedelta(seconds=1.1))
    assert await desk.state_of(delivery) is DeliveryState.PENDING

    await desk.pass_time(timedelta(hours=24))
    await desk.send()

    row = await desk.row(delivery)
    assert (row["state"], row["reason"]) == ("failed", EXHAUSTED)


@pytest.mark.rule("EN-31")
async def test_failures_are_bounded_in_number_and_then_counted_as_failed(desk: Desk) -> None:
    [delivery] = await desk.reply("r")
    desk.channel.fail_next(*[Fault("unreachable")] * 20)

    for _ in range(10):
        await desk.send()
        await desk.pass_time(timedelta(minutes=6))

    assert (await desk.row(delivery))["reason"] == EXHAUSTED
    assert len(desk.channel.attempts) == 8
    assert desk.metrics.registry.get_sample_value(
        "parley_deliveries_total", {"channel": "lab", "outcome": "failed"}
    ) == pytest.approx(1)


@pytest.mark.rule("EN-31")
async def test_an_uncertain_head_holds_the_next_reply_for_30_seconds_and_its_own_next_chunk_for_ever(
    database_url: str,
) -> None:
    async with a_desk(database_url, LabChannel(capability=Capability.LOOK_UP_DEFINITE)) as desk:
        conversation = await a_conversation(desk.db)
        await desk.reply("chunk 1", "chunk 2", conversation=conversation)
        await desk.reply("next", conversation=conversation)
        desk.channel.accept_then_drop_connection()
        await desk.send()

        await desk.pass_time(timedelta(seconds=29))
        await desk.send()
        assert desk.channel.received == ["chunk 1"]
        await desk.pass_time(timedelta(seconds=2))
        await desk.send()
        assert desk.channel.received == ["chunk 1", "next"]

        await desk.reconciler.run_once()
        await desk.send()
        assert desk.channel.received == ["chunk 1", "next", "chunk 2"]


@pytest.mark.rule("EN-36")
async def test_the_chunks_behind_a_refused_one_fail_with_it(desk: Desk) -> None:
    await desk.reply("1", "2", "3")
    desk.channel.fail_next(Fault("unreachable"))
    await desk.send()
    desk.channel.fail_next(Fault("refuse"))
    await desk.pass_time(timedelta(seconds=2))

    await desk.send()

    assert await desk.states() == ["failed"] * 3
    rows = await desk.db.fetch("select reason from deliveries order by chunk")
    assert [row["reason"] for row in rows] == ["HTTP 400", CHUNK_FAILED, CHUNK_FAILED]
    assert [row["status"] for row in await desk.db.fetch("select status from items")] == ["failed"]


@pytest.mark.rule("EN-36")
async def test_a_reply_resumes_at_the_chunk_that_failed_for_the_moment(desk: Desk) -> None:
    chunks = desk.channel.split("\U0001f600" * 50)
    await desk.reply(*chunks)
    desk.channel.fail_next(Fault("unreachable"))
    await desk.send()

    await desk.pass_time(timedelta(seconds=2))
    await desk.send()

    assert "".join(desk.channel.received) == "\U0001f600" * 50
    assert [attempt.key[-2:] for attempt in desk.channel.attempts] == [":0", ":0", ":1", ":2"]


@pytest.mark.rule("EN-31")
async def test_an_oversized_reply_is_final_and_what_is_behind_it_goes_on(desk: Desk) -> None:
    conversation = await a_conversation(desk.db)
    [big] = await desk.reply("z" * 1_200_000, conversation=conversation)
    await desk.reply("small", conversation=conversation)

    await desk.send()

    assert (await desk.row(big))["reason"] == "text too long"
    assert desk.channel.received == ["small"]
    assert len(desk.channel.attempts) == 2


@pytest.mark.rule("EN-34")
async def test_no_request_starts_after_the_deadline_of_its_claim(database_url: str) -> None:
    times = iter([0.0, 12.0, 20.0, 20.1])
    limits = SendLimits(lease_for=timedelta(seconds=15), margin=timedelta(seconds=3))
    async with a_desk(database_url, limits=limits, monotonic=lambda: next(times)) as desk:
        [delivery] = await desk.reply("r")
        await desk.send()
        assert desk.channel.attempts == []
        assert await desk.state_of(delivery) is DeliveryState.PENDING

        await desk.pass_time(timedelta(seconds=2))
        await desk.send()
        assert desk.channel.received == ["r"]


@pytest.mark.rule("EN-31")
async def test_a_session_that_was_taken_over_claims_nothing(desk: Desk) -> None:
    await desk.reply("r")
    await desk.db.execute("update worker_sessions set dead_at = now() where id = $1", desk.session_id)

    with pytest.raises(SessionGone):
        await desk.send()

    assert await desk.states() == ["pending"]


@pytest.mark.rule("EN-31")
async def test_somebody_else_sending_at_the_address_means_skip(desk: Desk) -> None:
    conversation = await a_conversation(desk.db)
    [other] = await desk.reply("other's", conversation=conversation)
    await desk.reply("mine", conversation=conversation)
    await desk.reply("elsewhere", conversation=conversation, address="b")
    # A sending row behind the head cannot come from a claim; the unique index is what is left against it.
    await desk.db.execute("update deliveries set state = 'sending', position = default where id = $1", other)

    await desk.send()

    assert desk.channel.received == ["elsewhere"]


@pytest.mark.rule("EN-31", "EN-43")
async def test_a_locked_address_is_polled_again_at_once(desk: Desk) -> None:
    await desk.reply("r")
    async with desk.db.transaction() as tx:
        await tx.execute("select from addresses for update")
        sending = asyncio.create_task(desk.send())
        await asyncio.sleep(0.1)
        assert desk.channel.received == []

    await sending
    assert desk.channel.received == ["r"]


@pytest.mark.rule("EN-32")
async def test_every_attempt_carries_the_same_key(desk: Desk) -> None:
    [delivery] = await desk.reply("r")
    desk.channel.fail_next(Fault("unreachable"), Fault("drop"), Fault("server_error"))

    for _ in range(6):
        await desk.send()
        await desk.reconciler.run_once()
        await desk.pass_time(timedelta(seconds=10))

    assert await desk.state_of(delivery) is DeliveryState.SENT
    assert len(desk.channel.attempts) == 4
    assert len({attempt.key for attempt in desk.channel.attempts}) == 1


@pytest.mark.rule("EN-33")
@pytest.mark.parametrize("kind", ["drop", "stall", "server_error"])
async def test_a_lost_answer_is_uncertain_and_never_sent_again_blindly(database_url: str, kind: str) -> None:
    channel = LabChannel(capability=Capability.NONE, transport_timeout=timedelta(seconds=0.1))
    async with a_desk(database_url, channel) as desk:
        [delivery] = await desk.reply("r")
        channel.fail_next(Fault(kind))  # type: ignore[arg-type]

        await desk.send()
        await desk.send()

        assert await desk.state_of(delivery) is DeliveryState.UNCERTAIN
        assert len(channel.attempts) == 1


@pytest.mark.rule("EN-31")
async def test_the_running_sender_goes_on_by_itself_and_drains(desk: Desk) -> None:
    conversation = await a_conversation(desk.db)
    desk.channel.fail_next(Fault("rate_limit", retry_after=timedelta(seconds=0.2)))
    for number in range(5):
        await desk.reply(f"r{number}", conversation=conversation)
    running = asyncio.create_task(desk.sender.run())
    desk.sender.offer(await desk.addresses())

    await eventually("five replies", lambda: len(desk.channel.received) == 5)
    desk.sender.stop()
    await running

    assert desk.channel.received == [f"r{number}" for number in range(5)]
    assert await desk.states() == ["sent"] * 5


@pytest.mark.rule("EN-14")
async def test_one_poison_receipt_among_many_is_refused_alone(desk: Desk) -> None:
    for number in range(60):
        await desk.reply(f"r{number}", address=f"chat-{number}")
    await desk.db.execute(
        "create function poison() returns trigger language plpgsql as"
        " $$ begin if new.provider_id like '%:7:0' then raise check_violation; end if; return new; end $$;"
        " create trigger poison before update on deliveries for each row execute function poison()"
    )
    running = asyncio.create_task(desk.sender.run())
    desk.sender.offer(await desk.addresses())

    await eventually("60 sends", lambda: len(desk.channel.received) == 60)
    desk.sender.stop()
    await running
    assert sorted(await desk.states()) == ["sending"] + ["sent"] * 59


@pytest.mark.rule("EN-31")
async def test_three_senders_at_the_same_addresses_keep_order_and_send_nothing_twice(
    database_url: str,
) -> None:
    channel = LabChannel(capability=Capability.NONE)
    async with (
        a_desk(database_url, channel) as desk,
        a_desk(database_url, channel) as second,
        a_desk(database_url, channel) as third,
    ):
        for address in range(20):
            conversation = await a_conversation(desk.db)
            for number in range(10):
                await desk.reply(str(number), conversation=conversation, address=f"chat-{address}")

        await asyncio.gather(desk.send(), second.send(), third.send())

        assert await desk.states() == ["sent"] * 200
        for address in range(20):
            texts = [m.text for m in channel.messages if m.address == f"chat-{address}"]
            assert texts == [str(number) for number in range(10)]
