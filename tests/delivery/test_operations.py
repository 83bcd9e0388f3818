"""An operator's acts on deliveries, each with its line in the audit."""

import uuid

import pytest

from schemas.delivery import DeliveryState
from tests.support.delivery import Desk, a_desk
from workers.channels.lab import Fault, LabChannel
from workers.channels.port import Capability
from workers.operations.deliveries import abandon, list_deliveries, mark_sent, redeliver
from workers.operations.errors import ActRefused, NotFound


async def audited(desk: Desk) -> list[tuple[str, str, str]]:
    rows = await desk.db.fetch("select actor, act, detail ->> 'state' as state from audit order by id")
    return [(row["actor"], row["act"], row["state"]) for row in rows]


@pytest.mark.rule("EN-37")
async def test_a_failed_reply_is_redelivered_from_its_failed_chunk_under_the_same_keys(desk: Desk) -> None:
    ids = await desk.reply("1", "2", "3")
    desk.channel.fail_next(Fault("unreachable"))
    await desk.send()
    await desk.db.execute("update deliveries set due_at = now(), failures = 7")
    desk.channel.fail_next(Fault("refuse"))
    await desk.send()
    assert await desk.states() == ["failed"] * 3
    keys = [attempt.key for attempt in desk.channel.attempts]

    await redeliver(desk.db, ids[0], "ann")
    await desk.send()

    assert desk.channel.received == ["1", "2", "3"]
    assert desk.channel.attempts[-3].key == keys[0]
    assert [row["status"] for row in await desk.db.fetch("select status from items")] == ["sent"]
    assert await audited(desk) == [("ann", "deliveries.redeliver", "pending")]


@pytest.mark.rule("EN-37")
async def test_an_unknown_delivery_goes_again_as_a_possible_duplicate(database_url: str) -> None:
    async with a_desk(database_url, LabChannel(capability=Capability.NONE)) as desk:
        [delivery] = await desk.reply("r")
        desk.channel.fail_next(Fault("drop"))
        await desk.send()
        await desk.reconciler.run_once()

        await redeliver(desk.db, delivery, "ann")
        await desk.send()

        assert await desk.state_of(delivery) is DeliveryState.SENT
        assert desk.channel.attempts[-1].possible_duplicate
        assert len({attempt.key for attempt in desk.channel.attempts}) == 1


@pytest.mark.rule("EN-37")
async def test_what_an_operator_saw_arrive_is_marked_sent_and_recalled(database_url: str) -> None:
    async with a_desk(database_url, LabChannel(capability=Capability.NONE)) as desk:
        [delivery] = await desk.reply("r")
        desk.channel.accept_then_drop_connection()
        await desk.send()
        await desk.reconciler.run_once()

        await mark_sent(desk.db, delivery, "ann", "p-1")

        row = await desk.row(delivery)
        assert (row["state"], row["provider_id"], row["reason"]) == ("sent", "p-1", None)
        assert [item["status"] for item in await desk.db.fetch("select status from items")] == ["sent"]
        assert await audited(desk) == [("ann", "deliveries.mark_sent", "sent")]


@pytest.mark.rule("EN-37")
async def test_an_abandoned_delivery_is_never_sent_and_nor_are_its_later_chunks(desk: Desk) -> None:
    ids = await desk.reply("1", "2")

    await abandon(desk.db, ids[0], "ann")
    await desk.send()

    assert desk.channel.attempts == []
    assert await desk.states() == ["failed", "failed"]
    assert await audited(desk) == [("ann", "deliveries.abandon", "failed")]


@pytest.mark.rule("EN-37")
async def test_acts_that_do_not_fit_change_and_audit_nothing(desk: Desk) -> None:
    [delivery] = await desk.reply("r")
    await desk.send()

    for act in (redeliver, mark_sent, abandon):
        with pytest.raises(ActRefused):
            await act(desk.db, delivery, "ann")
        with pytest.raises(NotFound):
            await act(desk.db, uuid.uuid4(), "ann")

    assert await desk.states() == ["sent"]
    assert await audited(desk) == []


@pytest.mark.rule("EN-37")
async def test_the_list_is_paged_filtered_and_without_text(desk: Desk) -> None:
    for number in range(5):
        await desk.reply(f"secret {number}", address=f"chat-{number}")
    desk.channel.fail_next(Fault("refuse"))
    await desk.sender.run_once((await desk.addresses())[:1])

    first = await list_deliveries(desk.db, limit=3)
    rest = await list_deliveries(desk.db, limit=3, before=first[-1].delivery_id)
    failed = await list_deliveries(desk.db, states=[DeliveryState.FAILED], channel="lab")

    assert [each.address for each in first + rest] == [f"chat-{number}" for number in (4, 3, 2, 1, 0)]
    assert [(each.address, each.reason) for each in failed] == [("chat-0", "HTTP 400")]
    assert "secret" not in repr(first + rest)
