"""What the reconciler may do about a delivery whose answer was lost, by the channel's capability."""

import asyncio
from datetime import timedelta

import pytest

from schemas.delivery import DeliveryState
from tests.support.delivery import Desk, a_conversation, a_desk, a_session
from tests.support.waiting import eventually
from workers.channels.lab import Fault, LabChannel
from workers.channels.port import Capability
from workers.delivery.journal import abandon_pending, finish_replies
from workers.delivery.policy import CANCELLED, EXHAUSTED

QUIET = timedelta(seconds=21)
"""Past the lease of a claim (15 s) and the lab's transport time-out (5 s)."""


@pytest.mark.rule("EN-34")
async def test_an_idempotent_channel_gets_the_same_key_again(desk: Desk) -> None:
    [delivery] = await desk.reply("r")
    desk.channel.accept_then_drop_connection()
    await desk.send()

    await desk.reconciler.run_once()

    assert await desk.state_of(delivery) is DeliveryState.SENT
    assert desk.channel.received == ["r"]
    assert [attempt.key for attempt in desk.channel.attempts] == [desk.channel.messages[0].key] * 2


@pytest.mark.rule("EN-34")
async def test_a_window_counts_from_the_first_attempt_less_a_margin(database_url: str) -> None:
    channel = LabChannel(capability=Capability.IDEMPOTENT_WINDOW, window=timedelta(seconds=100))
    async with a_desk(database_url, channel) as desk:
        [inside] = await desk.reply("inside", address="x")
        [outside] = await desk.reply("outside", address="y")
        channel.accept_then_drop_connection(2)
        await desk.send()
        await desk.pass_time(timedelta(seconds=89))
        await desk.db.execute("update deliveries set due_at = 'infinity' where id = $1", outside)
        await desk.reconciler.run_once()
        await desk.db.execute("update deliveries set due_at = now() where id = $1", outside)

        await desk.pass_time(timedelta(seconds=2))
        await desk.reconciler.run_once()

        assert await desk.state_of(inside) is DeliveryState.SENT
        assert await desk.state_of(outside) is DeliveryState.UNKNOWN
        assert sorted(channel.received) == ["inside", "outside"]


@pytest.mark.rule("EN-34")
async def test_a_resend_that_waited_past_the_window_is_not_sent(database_url: str) -> None:
    channel = LabChannel(capability=Capability.IDEMPOTENT_WINDOW, window=timedelta(seconds=100))
    async with a_desk(database_url, channel) as desk:
        [delivery] = await desk.reply("r")
        channel.fail_next(Fault("drop", accepts=True), Fault("rate_limit", retry_after=timedelta(minutes=10)))
        await desk.send()
        await desk.reconciler.run_once()
        assert await desk.state_of(delivery) is DeliveryState.PENDING

        await desk.pass_time(timedelta(minutes=10, seconds=1))
        await desk.send()
        await desk.pass_time(timedelta(seconds=5))
        await desk.reconciler.run_once()

        assert await desk.state_of(delivery) is DeliveryState.UNKNOWN
        assert len(channel.attempts) == 2


@pytest.mark.rule("EN-34")
async def test_a_stored_message_is_found_by_its_key_and_not_by_its_text(database_url: str) -> None:
    channel = LabChannel(capability=Capability.LOOK_UP_DEFINITE)
    async with a_desk(database_url, channel) as desk:
        conversation = await a_conversation(desk.db)
        await desk.reply("ok", conversation=conversation)
        await desk.send()
        [lost] = await desk.reply("ok", conversation=conversation)
        channel.fail_next(Fault("stall"))
        channel.transport_timeout = timedelta(seconds=0.05)
        await desk.send()
        channel.fail_look_ups(1)

        await desk.reconciler.run_once()
        assert await desk.state_of(lost) is DeliveryState.UNCERTAIN
        await desk.pass_time(QUIET)
        await desk.reconciler.run_once()

        assert await desk.state_of(lost) is DeliveryState.SENT
        assert channel.received == ["ok", "ok"]
        assert await desk.attempts(lost) == [
            ("send", "uncertain", False),
            ("look_up", "unsure", False),
            ("look_up", "absent", False),
            ("send", "sent", False),
        ]


@pytest.mark.rule("EN-34")
async def test_a_negative_look_up_counts_only_after_deadline_time_out_and_settling(database_url: str) -> None:
    channel = LabChannel(capability=Capability.LOOK_UP_DEFINITE, settling_time=timedelta(seconds=10))
    async with a_desk(database_url, channel) as desk:
        [delivery] = await desk.reply("r")
        channel.fail_next(Fault("drop"))
        await desk.send()

        await desk.reconciler.run_once()
        await desk.pass_time(timedelta(seconds=29))
        await desk.reconciler.run_once()
        assert await desk.state_of(delivery) is DeliveryState.UNCERTAIN
        assert len(channel.attempts) == 1

        await desk.pass_time(timedelta(seconds=2))
        await desk.reconciler.run_once()
        assert await desk.state_of(delivery) is DeliveryState.SENT
        assert channel.received == ["r"]


@pytest.mark.rule("EN-34")
@pytest.mark.parametrize(("accepts", "state"), [(True, "sent"), (False, "unknown")])
async def test_a_positive_look_up_proves_sent_and_nothing_else(
    database_url: str, accepts: bool, state: str
) -> None:
    channel = LabChannel(capability=Capability.LOOK_UP_POSITIVE)
    async with a_desk(database_url, channel) as desk:
        await desk.reply("r")
        channel.fail_next(Fault("drop", accepts=accepts))
        await desk.send()

        await desk.pass_time(QUIET)
        await desk.reconciler.run_once()

        assert await desk.states() == [state]
        assert len(channel.attempts) == 1


@pytest.mark.rule("EN-34")
async def test_without_any_capability_it_is_unknown_or_a_possible_duplicate_by_choice(
    database_url: str,
) -> None:
    channel = LabChannel(capability=Capability.NONE, resend_unknown=["careless"])
    async with a_desk(database_url, channel) as desk:
        [careful] = await desk.reply("careful", address="x", account="careful")
        [careless] = await desk.reply("careless", address="y", account="careless")
        channel.accept_then_drop_connection(2)
        await desk.send()

        await desk.reconciler.run_once()

        assert (await desk.row(careful))["state"] == "unknown"
        row = await desk.row(careless)
        assert (row["state"], row["possible_duplicate"]) == ("sent", True)
        assert sorted(channel.received) == ["careful", "careless", "careless"]
        assert channel.attempts[-1].possible_duplicate


@pytest.mark.rule("EN-31")
async def test_uncertain_tries_are_bounded_and_then_unknown(desk: Desk) -> None:
    [delivery] = await desk.reply("r")
    desk.channel.fail_next(*[Fault("server_error")] * 50)

    for _ in range(12):
        await desk.send()
        await desk.reconciler.run_once()
        await desk.pass_time(timedelta(minutes=6))

    row = await desk.row(delivery)
    assert (row["state"], row["reason"]) == ("unknown", EXHAUSTED)
    assert len(desk.channel.attempts) == 8


@pytest.mark.rule("EN-30")
async def test_a_delivery_whose_command_was_lost_is_sent_by_the_running_reconciler_within_5_seconds(
    desk: Desk,
) -> None:
    sending, reconciling = (
        asyncio.create_task(desk.sender.run()),
        asyncio.create_task(desk.reconciler.run()),
    )
    await desk.reply("r")

    await eventually("the reply", lambda: desk.channel.received == ["r"], within=timedelta(seconds=5))

    desk.reconciler.stop()
    desk.sender.stop()
    await asyncio.gather(sending, reconciling)
    assert await desk.states() == ["sent"]


@pytest.mark.rule("EN-30")
async def test_the_walk_over_many_addresses_comes_round(desk: Desk) -> None:
    for number in range(7):
        await desk.reply(f"r{number}", address=f"chat-{number}")
    await desk.pass_time(timedelta(seconds=2.1))
    desk.reconciler._limits = type(desk.reconciler._limits)(addresses_walked=2, addresses_a_round=2)

    for _ in range(4):
        await desk.reconciler.run_once()

    assert len(desk.channel.received) == 7


@pytest.mark.rule("EN-33")
async def test_sends_of_a_dead_session_become_uncertain_and_its_receipt_comes_late(database_url: str) -> None:
    async with a_desk(database_url) as desk, a_desk(database_url) as other:
        paused, go_on = asyncio.Event(), asyncio.Event()
        send = other.channel.send

        async def slow(outgoing, timeout):  # type: ignore[no-untyped-def]
            paused.set()
            await go_on.wait()
            return await send(outgoing, timeout)

        other.channel.send = slow  # type: ignore[method-assign]
        [delivery] = await other.reply("r")
        sending = asyncio.create_task(other.send())
        await paused.wait()

        assert await desk.reconciler.take_from_the_dead() == 0
        await desk.db.execute("update worker_sessions set dead_at = now() where id = $1", other.session_id)
        await desk.reconciler.run_once()
        go_on.set()
        await sending

        assert await desk.state_of(delivery) is DeliveryState.SENT
        assert ("send", "sent", True) in await desk.attempts(delivery)


@pytest.mark.rule("EN-31")
async def test_two_reconcilers_decide_each_delivery_once(database_url: str) -> None:
    channel = LabChannel(capability=Capability.LOOK_UP_DEFINITE)
    async with a_desk(database_url, channel) as desk, a_desk(database_url, channel) as other:
        for number in range(40):
            await desk.reply(f"r{number}", address=f"chat-{number}")
        channel.accept_then_drop_connection(40)
        await desk.send()

        decided = await asyncio.gather(
            desk.reconciler.resolve_uncertain(), other.reconciler.resolve_uncertain()
        )

        assert sum(each.decided for each in decided) == 40
        assert await desk.states() == ["sent"] * 40


@pytest.mark.rule("EN-27")
async def test_cancelling_ends_what_waits_and_asks_about_what_is_under_way(database_url: str) -> None:
    async with a_desk(database_url, LabChannel(capability=Capability.LOOK_UP_DEFINITE)) as desk:
        conversation = await a_conversation(desk.db)
        under_way, go_on = asyncio.Event(), asyncio.Event()
        send = desk.channel.send

        async def slow(outgoing, timeout):  # type: ignore[no-untyped-def]
            under_way.set()
            await go_on.wait()
            return await send(outgoing, timeout)

        desk.channel.send = slow  # type: ignore[method-assign]
        [first] = await desk.reply("first", conversation=conversation)
        [second] = await desk.reply("second", conversation=conversation)
        await desk.reply("aside", conversation=conversation, recalled=False)
        sending = asyncio.create_task(desk.send())
        await under_way.wait()

        async with desk.db.transaction() as tx:
            ended = await abandon_pending(tx, [conversation.run_id])
        go_on.set()
        await sending

        assert ended == 2
        assert (await desk.row(second))["reason"] == "abandoned"
        assert await desk.attempts(first) == [("send", "sent", True)]
        assert await desk.state_of(first) is DeliveryState.SENDING
        await desk.reconciler.run_once()
        assert await desk.state_of(first) is DeliveryState.SENT


@pytest.mark.rule("EN-27")
async def test_a_cancelled_delivery_that_is_not_found_ends_unknown_and_is_never_sent_again(
    desk: Desk,
) -> None:
    conversation = await a_conversation(desk.db)
    [delivery] = await desk.reply("r", conversation=conversation)
    desk.channel.fail_next(Fault("drop"))
    await desk.send()
    async with desk.db.transaction() as tx:
        await abandon_pending(tx, [conversation.run_id])

    await desk.reconciler.run_once()
    assert await desk.state_of(delivery) is DeliveryState.UNCERTAIN
    await desk.pass_time(QUIET)
    await desk.reconciler.run_once()

    row = await desk.row(delivery)
    assert (row["state"], row["reason"]) == ("unknown", CANCELLED)
    assert len(desk.channel.attempts) == 1


@pytest.mark.rule("CM-34")
@pytest.mark.parametrize(
    ("chunks", "item"),
    [
        (["sent", "sent", "sent"], "sent"),
        (["sent", "sent", "sending"], "pending"),
        (["sent", "uncertain", "sent"], "pending"),
        (["sent", "unknown", "pending"], "pending"),
        (["sent", "unknown", "sent"], "unknown"),
        (["failed", "unknown", "sent"], "failed"),
    ],
)
async def test_a_reply_in_chunks_is_recalled_once_every_chunk_is_sent(
    desk: Desk, chunks: list[str], item: str
) -> None:
    conversation = await a_conversation(desk.db)
    deliveries = await desk.reply("a ", "b ", "c", conversation=conversation)
    for delivery, state in zip(deliveries, chunks, strict=True):
        await desk.db.execute(
            "update deliveries set state = $2,"
            " finished_at = case when $2 in ('sent', 'unknown', 'failed') then parley_now() end where id = $1",
            delivery,
            state,
        )

    async with desk.db.transaction() as tx:
        await finish_replies(tx, [f"{conversation.run_id}:0:0"], [conversation.lane_id])

    items = await desk.db.fetch("select body, status from items")
    assert [(row["body"], row["status"]) for row in items] == [("a b c", item)]


@pytest.mark.rule("CM-34")
async def test_the_last_receipt_of_a_reply_lets_the_waiting_conversation_go_on(desk: Desk) -> None:
    waiting, backing_off = await a_conversation(desk.db), await a_conversation(desk.db)
    for conversation in (waiting, backing_off):
        await desk.reply("r", conversation=conversation, address=str(conversation.lane_id))
        await desk.db.execute(
            "insert into ready (lane_id, agent, account, due_at)"
            " values ($1, 'echo', 'lab/a', parley_now() + interval '10 s')",
            conversation.lane_id,
        )
    await desk.db.execute("update runs set due_at = now() + interval '5 s' where id = $1", backing_off.run_id)

    await desk.send()

    rows = await desk.db.fetch(
        "select lane_id, due_at <= now() as due, due_at < now() + interval '6 s' as soon from ready"
    )
    due = {row["lane_id"]: (row["due"], row["soon"]) for row in rows}
    assert due == {waiting.lane_id: (True, True), backing_off.lane_id: (False, True)}


@pytest.mark.rule("EN-14")
async def test_senders_reconcilers_and_cancels_meet_without_a_deadlock(database_url: str) -> None:
    async with a_desk(database_url) as desk, a_desk(database_url) as other:
        conversations = [await a_conversation(desk.db) for _ in range(30)]
        for conversation in conversations:
            for chat in range(3):
                await desk.reply(
                    "r", conversation=conversation, address=f"chat-{chat}-{conversation.lane_id % 7}"
                )
        before = await desk.db.fetchrow(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )

        async def cancel() -> None:
            for conversation in conversations[::3]:
                async with other.db.transaction() as tx:
                    await tx.execute(
                        "select from lanes where id = $1 for no key update", conversation.lane_id
                    )
                    await abandon_pending(tx, [conversation.run_id])

        await asyncio.gather(
            desk.send(), other.send(), cancel(), desk.reconciler.run_once(), other.reconciler.run_once()
        )

        after = await desk.db.fetchrow(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        assert before == after
        await a_session(desk.db)
        await desk.pass_time(QUIET)
        await desk.send()
        await desk.reconciler.run_once()
        assert set(await desk.states()) <= {"sent", "failed", "unknown"}
