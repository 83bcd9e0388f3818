"""The app's policy is asked before admission and outside any transaction; what it leaves open waits alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from schemas.event import Event
from schemas.identity import Principal
from tests.intake.conftest import Clock, Desk, a_desk
from tests.support.events import a_record, an_agent, an_event
from tests.support.waiting import eventually
from workers.intake.authorizing import AUTHORIZE_TIMEOUT, POLICY_PATIENCE
from workers.kafka import KafkaSettings
from workers.kafka.record import Tenure
from workers.memory.access import Access, Allow, Deny
from workers.memory.limits import Conversations

HELPER = an_agent("helper", conversation=True)
PATIENCE = timedelta(seconds=30)


class Policy:
    """Answers by the text of the event: `deny`, `raise`, `exit`, `cancel`, `hang`, `nonsense`; else it allows."""

    def __init__(self) -> None:
        self.asked: list[Access] = []
        self.repaired = False
        self.together = 0
        self.most_together = 0
        self.released = asyncio.Event()

    async def __call__(self, access: Access) -> Any:
        self.asked.append(access)
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        try:
            return await self._answer(access)
        finally:
            self.together -= 1

    async def _answer(self, access: Access) -> Any:
        act = "" if self.repaired else access.event.text
        await asyncio.sleep(0)
        if act.endswith("hang"):
            await self.released.wait()
        if act.endswith("raise"):
            raise ConnectionError("the policy's own database is away")
        if act.endswith("exit"):
            raise SystemExit(1)
        if act.endswith("cancel"):
            raise asyncio.CancelledError
        if act.endswith("nonsense"):
            return True
        return Deny("not yours") if act.endswith("deny") else Allow()

    def texts(self) -> list[str]:
        return [access.event.text for access in self.asked]


@asynccontextmanager
async def guarded(url: str, settings: KafkaSettings, policy: Policy, **options: Any) -> AsyncIterator[Desk]:
    options = {"agents": [HELPER], **options}
    async with a_desk(url, settings, conversations=Conversations(policy), **options) as desk:
        yield desk


def said(*texts: str, chat: str = "c") -> list[Event]:
    return [an_event(chat=chat, text=text, event_id=f"{chat}:{n}:{text}") for n, text in enumerate(texts)]


def ids(events: Sequence[Event]) -> list[str]:
    return [event.event_id for event in events]


async def admitted(desk: Desk) -> list[str]:
    return [event_id for _, event_id in await desk.runs()]


@pytest.mark.rule("EN-12")
async def test_a_batch_is_asked_about_at_once_with_the_verified_principal_and_no_connection_taken(
    database_url: str, settings: KafkaSettings
) -> None:
    policy = Policy()
    async with guarded(database_url, settings, policy) as desk:
        events = [an_event(principal=Principal(f"u{n}"), text="hang") for n in range(50)]
        task = asyncio.create_task(desk.take(*map(a_record, events)))
        await eventually("all are asked", lambda: policy.together == 50)

        in_use, rows = desk.database.in_use, await desk.rows()
        policy.released.set()
        await task

        assert (in_use, rows) == (0, 0)
        assert [access.principal.id for access in policy.asked] == [f"u{n}" for n in range(50)]
        assert {access.purpose for access in policy.asked} == {"dispatch"}
        assert {access.identity.chat for access in policy.asked} == {event.chat for event in events}
        assert len(await desk.runs()) == 50


@pytest.mark.rule("EN-12")
async def test_a_denial_is_final_for_that_delivery_leaves_no_row_and_is_asked_anew_on_the_next(
    database_url: str, settings: KafkaSettings
) -> None:
    policy = Policy()
    async with guarded(database_url, settings, policy) as desk:
        [event] = said("deny")
        await desk.take(a_record(event, offset=1))
        await desk.retry()
        rows, acknowledged, asked = await desk.rows(), desk.offsets(), len(policy.asked)

        policy.repaired = True
        await desk.take(a_record(event, offset=2))

        assert (rows, acknowledged, asked) == (0, [1], 1)
        assert await admitted(desk) == ids([event])
        assert (desk.counted("denied"), desk.counted("admitted")) == (1, 1)


@pytest.mark.rule("EN-12")
@pytest.mark.parametrize("failure", ["raise", "exit", "cancel", "hang", "nonsense"])
async def test_while_the_policy_fails_its_conversation_waits_and_the_others_go_on(
    database_url: str, settings: KafkaSettings, failure: str
) -> None:
    """Of a policy that forgets its answer, only Allow may allow."""
    policy, quick = Policy(), timedelta(milliseconds=50)
    async with guarded(database_url, settings, policy, policy_timeout=quick) as desk:
        stuck, free = said("ok", failure, "later", chat="stuck"), said("ok", "ok", chat="free")
        batch = [stuck[0], free[0], stuck[1], stuck[2], free[1]]
        await desk.take(*[a_record(event, offset=n) for n, event in enumerate(batch)])
        more = an_event(chat="stuck", event_id="more")
        await desk.take(a_record(more, offset=5))
        await desk.retry()
        early, offsets = await admitted(desk), desk.offsets()

        policy.repaired = True
        await desk.retry()

        assert sorted(early) == sorted(ids([stuck[0], *free]))
        assert offsets == [0, 1, 4]
        runs = [event_id for event_id in await admitted(desk) if event_id not in ids(free)]
        assert runs == [*ids(stuck), "more"]
        positions = await desk.database.fetch("select event_id from runs order by lane_id, position")
        assert [r[0] for r in positions if r[0] not in ids(free)] == [*ids(stuck), "more"]
        assert desk.offsets() == [0, 1, 2, 3, 4, 5]
        assert desk.intake.parked == 0
        assert await desk.letters() == []


@pytest.mark.rule("EN-12")
async def test_after_thirty_seconds_an_undecided_event_is_policy_unavailable_and_the_next_goes(
    database_url: str, settings: KafkaSettings
) -> None:
    policy, clock = Policy(), Clock()
    async with guarded(database_url, settings, policy, clock=clock) as desk:
        events = said("raise", "fine")
        await desk.take(*[a_record(event, offset=n) for n, event in enumerate(events)])
        clock.forward(PATIENCE - timedelta(seconds=1))
        await desk.retry()
        before = (desk.offsets(), await desk.letters())

        clock.forward(timedelta(seconds=1))
        await desk.retry()

        assert before == ([], [])
        assert [(letter.reason, letter.key) for letter in await desk.letters()] == [
            ("policy_unavailable", "channel.events:0:0")
        ]
        assert await admitted(desk) == ids(events[1:])
        assert desk.offsets() == [0, 1]
        assert desk.intake.parked == 0


@pytest.mark.rule("EN-12")
async def test_what_waits_of_a_partition_that_was_revoked_is_left_to_its_new_owner(
    database_url: str, settings: KafkaSettings
) -> None:
    policy, clock, tenure = Policy(), Clock(), Tenure()
    async with guarded(database_url, settings, policy, clock=clock) as desk:
        events = said("raise", "behind", chat="stuck")
        gone = [replace(a_record(event, offset=n), tenure=tenure) for n, event in enumerate(events)]
        await desk.take(*gone)
        await desk.take(a_record(an_event(text="raise", chat="other"), offset=7))

        tenure.ended = True
        clock.forward(PATIENCE - timedelta(seconds=1))
        await desk.retry()
        parked = desk.intake.parked
        clock.forward(timedelta(seconds=1))
        await desk.retry()

        assert parked == 1
        assert desk.offsets() == [7]
        assert [letter.key for letter in await desk.letters()] == ["channel.events:0:7"]
        policy.repaired = True
        await desk.take(*[a_record(event, offset=n) for n, event in enumerate(events)])
        assert await admitted(desk) == ids(events)


@pytest.mark.rule("EN-12")
async def test_a_long_queue_behind_a_dead_policy_is_not_given_thirty_seconds_each(
    database_url: str, settings: KafkaSettings
) -> None:
    """The gap before the committed offset stays bounded: all of them came at once, and all of them go at once."""
    policy, clock = Policy(), Clock()
    async with guarded(database_url, settings, policy, clock=clock) as desk:
        events = said(*["raise"] * 200) + said(*["raise"] * 5, chat="d")
        await desk.take(*[a_record(event, offset=n) for n, event in enumerate(events)])

        clock.forward(PATIENCE)
        await desk.retry()

        assert len(await desk.letters()) == 205
        assert desk.offsets() == list(range(205))
        assert await desk.rows() == 0


@pytest.mark.rule("EN-12")
async def test_places_are_retried_side_by_side(database_url: str, settings: KafkaSettings) -> None:
    policy, quick = Policy(), timedelta(milliseconds=100)
    async with guarded(database_url, settings, policy, policy_timeout=quick) as desk:
        await desk.take(*[a_record(an_event(text="hang")) for _ in range(30)])
        policy.most_together = 0

        await desk.retry()

        assert policy.most_together == 30


@pytest.mark.rule("EN-12", "EN-13")
async def test_what_the_policy_answered_for_one_agent_stays_while_it_is_asked_again_for_the_other(
    database_url: str, settings: KafkaSettings
) -> None:
    """Denied is final for the delivery, even where the same event is undecided for another agent."""

    class ByAgent(Policy):
        async def _answer(self, access: Access) -> Any:
            if access.agent == "strict" and not self.repaired:
                return Deny("no")
            if access.agent == "flaky" and not self.repaired:
                raise TimeoutError
            return Allow()

    policy = ByAgent()
    agents = [an_agent(name, conversation=True) for name in ("strict", "flaky", "open")] + [an_agent("free")]
    async with guarded(database_url, settings, policy, agents=agents) as desk:
        await desk.take(a_record(an_event(event_id="E"), offset=9))
        waiting = await desk.runs()
        policy.repaired = True
        await desk.retry()

        assert waiting == []
        assert sorted(await desk.runs()) == [("flaky", "E"), ("free", "E"), ("open", "E")]
        assert sorted(access.agent for access in policy.asked) == ["flaky", "flaky", "open", "strict"]
        assert desk.offsets() == [9]


@pytest.mark.rule("EN-12")
async def test_the_default_time_out_is_five_seconds_and_the_patience_thirty() -> None:
    assert timedelta(seconds=5) == AUTHORIZE_TIMEOUT
    assert POLICY_PATIENCE == PATIENCE
