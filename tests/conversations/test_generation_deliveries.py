"""Reset and delete while replies wait, are under way or are in doubt: the past is not recalled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import pytest

from tests.conversations.gates import a_gate
from tests.conversations.racing import HELPER, Act, either, history_of_next, kept, says
from tests.support import delivery
from tests.support.clock import shift_clock
from tests.support.desk import Desk, a_desk
from tests.support.waiting import eventually
from workers.channels.lab import Fault, LabChannel
from workers.channels.port import Capability, Outcome, Outgoing
from workers.operations.conversations import delete, reset
from workers.operations.deliveries import redeliver


class Held(LabChannel):
    """A transport that has accepted nothing until `go` is set."""

    def __init__(self, *, capability: Capability = Capability.LOOK_UP_DEFINITE) -> None:
        super().__init__(capability=capability)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def send(self, outgoing: Outgoing, timeout: timedelta) -> Outcome:
        self.asked.set()
        await self.go.wait()
        return await super().send(outgoing, timeout)


@asynccontextmanager
async def an_unsent_reply(url: str, channel: LabChannel) -> AsyncIterator[tuple[Desk, delivery.Desk, int]]:
    """A conversation whose only turn has ended with one reply that nobody has sent yet."""
    async with a_desk(url, HELPER) as desk, delivery.a_desk(url, channel) as out:
        [run_id] = await desk.admit("helper", says("first"))
        await desk.work()
        yield desk, out, (await desk.lane_of(run_id))["id"]


async def delivered(desk: Desk) -> tuple[str, str | None]:
    """State of the only delivery, and status of its item if there is one."""
    state = await desk.value("select state from deliveries")
    return state, await desk.value("select status from items where kind = 'reply'")


def item(act: Act, status: str) -> str | None:
    """What the transcript says of a reply of the old generation."""
    return status if act is reset else None


@either
@pytest.mark.rule("CM-62", "CM-63", "CM-34")
async def test_a_pending_reply_of_the_old_generation_is_never_sent(database_url: str, act: Act) -> None:
    async with an_unsent_reply(database_url, LabChannel()) as (desk, out, lane_id):
        renewed = await act(desk.database, lane_id, "ann")

        await out.send()
        await shift_clock(desk.database, timedelta(hours=1))
        await out.reconciler.run_once()

        assert (renewed.abandoned_deliveries, out.channel.received) == (1, [])
        assert await delivered(desk) == ("failed", item(act, "failed"))
        assert await history_of_next(desk) == []


@either
@pytest.mark.rule("CM-35", "CM-36", "CM-63")
async def test_a_send_under_way_when_its_conversation_is_renewed_writes_no_receipt_and_is_found_out(
    database_url: str, act: Act
) -> None:
    channel = Held()
    async with an_unsent_reply(database_url, channel) as (desk, out, lane_id):
        sending = asyncio.ensure_future(out.send())
        await channel.asked.wait()

        await act(desk.database, lane_id, "ann")
        channel.go.set()
        await sending

        assert await delivered(desk) == ("sending", item(act, "pending"))
        assert channel.received == ["re: first"]
        await out.reconciler.run_once()
        assert await delivered(desk) == ("sent", item(act, "sent"))
        assert await history_of_next(desk) == []
        if act is delete:
            assert (await kept(desk))["items"] == ["next"]


@either
@pytest.mark.rule("CM-35", "CM-63")
@pytest.mark.parametrize("arrived", [True, False])
async def test_an_uncertain_reply_of_the_old_generation_is_asked_about_and_not_sent_again(
    database_url: str, act: Act, arrived: bool
) -> None:
    channel = LabChannel(capability=Capability.LOOK_UP_DEFINITE)
    async with an_unsent_reply(database_url, channel) as (desk, out, lane_id):
        if arrived:
            channel.accept_then_drop_connection()
        else:
            channel.fail_next(Fault("drop"))
        await out.send()
        assert (await delivered(desk))[0] == "uncertain"

        await act(desk.database, lane_id, "ann")
        await shift_clock(desk.database, timedelta(hours=1))
        await out.reconciler.run_once()

        ending = "sent" if arrived else "unknown"
        assert await delivered(desk) == (ending, item(act, ending))
        assert len(channel.attempts) == 1
        assert await history_of_next(desk) == []


@either
@pytest.mark.rule("CM-34", "CM-63")
async def test_an_unknown_reply_that_an_operator_finds_out_about_later_comes_back_in_no_generation(
    database_url: str, act: Act
) -> None:
    channel = LabChannel(capability=Capability.NONE)
    async with an_unsent_reply(database_url, channel) as (desk, out, lane_id):
        channel.accept_then_drop_connection()
        await out.send()
        await out.reconciler.run_once()
        assert (await delivered(desk))[0] == "unknown"

        await act(desk.database, lane_id, "ann")
        delivery_id: UUID = await desk.value("select id from deliveries")
        await redeliver(desk.database, delivery_id, "ann")
        assert await delivered(desk) == ("pending", item(act, "pending"))
        await out.send()

        assert await delivered(desk) == ("sent", item(act, "sent"))
        assert await history_of_next(desk) == []


@either
@pytest.mark.rule("CM-34", "CM-62", "CM-63")
async def test_a_receipt_under_way_is_written_and_its_reply_is_of_the_past(
    database_url: str, act: Act
) -> None:
    async with an_unsent_reply(database_url, LabChannel()) as (desk, out, lane_id):
        async with a_gate(desk.database, "delivery_attempts", "insert") as gate:
            sending = await gate.stop(out.send())
            renewing = await gate.behind(act(desk.database, lane_id, "ann"))
            await gate.open()
            await sending
            renewed = await renewing

        assert renewed.abandoned_deliveries == 0
        assert await delivered(desk) == ("sent", item(act, "sent"))
        assert await history_of_next(desk) == []


@either
@pytest.mark.rule("CM-36", "CM-62", "CM-63")
async def test_a_receipt_that_waits_for_the_renewal_comes_late(database_url: str, act: Act) -> None:
    channel = Held()
    async with an_unsent_reply(database_url, channel) as (desk, out, lane_id):
        sending = asyncio.ensure_future(out.send())
        await channel.asked.wait()
        async with a_gate(desk.database, "audit", "insert") as gate:
            renewing = await gate.stop(act(desk.database, lane_id, "ann"))
            channel.go.set()
            await eventually("the receipt waits for the lane", lambda: _waits(desk))
            await gate.open()
            await renewing
        await sending

        assert await delivered(desk) == ("sending", item(act, "pending"))
        assert await desk.value("select bool_and(late) from delivery_attempts")
        await out.reconciler.run_once()
        assert await delivered(desk) == ("sent", item(act, "sent"))


async def _waits(desk: Desk) -> bool:
    waiting = await desk.value(
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and wait_event_type = 'Lock' and wait_event <> 'advisory'"
    )
    return bool(waiting)
