"""What runs are serialized by: positions are taken under the lane's lock, and a free lane becomes ready."""

import asyncio
import random

import pytest

from schemas.identity import Principal
from tests.admission.conftest import Desk
from tests.support.events import an_agent, an_event
from workers.admission import store
from workers.admission.policy import Admitted

BOUND = an_agent("helper", conversation=True)
UNBOUND = an_agent("echo")
BY_CHAT = an_agent("by-chat", concurrency_key=lambda event: event.chat)
BY_SENDER = an_agent("billing", concurrency_key=lambda event: event.principal.id)


@pytest.mark.rule("EN-28")
async def test_runs_without_memory_have_a_lane_each(desk: Desk) -> None:
    await desk.admit(UNBOUND, *[an_event(chat="one chat") for _ in range(5)])

    runs = await desk.runs()

    assert len({run["lane_id"] for run in runs}) == 5
    assert {(run["position"], run["memory_key"]) for run in runs} == {(1, None)}
    assert await desk.kinds_of_lanes() == {"run": 5}
    assert (await desk.count("conversations"), await desk.count("ready")) == (0, 5)


@pytest.mark.rule("EN-28")
async def test_runs_without_memory_serialize_by_a_given_concurrency_key_only(desk: Desk) -> None:
    events = [an_event(principal=Principal(who)) for who in ("ann", "bob", "ann", "ann")]

    await desk.admit(BY_SENDER, *events)

    lanes = [run["lane_id"] for run in await desk.runs_in_order_of(events)]
    assert lanes[0] == lanes[2] == lanes[3] != lanes[1]
    assert [run["position"] for run in await desk.runs_in_order_of(events)] == [1, 1, 2, 3]
    assert await desk.kinds_of_lanes() == {"key": 2}
    assert await desk.count("ready") == 2


@pytest.mark.rule("EN-28")
async def test_two_agents_with_one_key_share_no_lane(desk: Desk) -> None:
    event = an_event()
    other = an_agent("shipping", concurrency_key=lambda event: event.principal.id)

    await desk.admit(BY_SENDER, event)
    await desk.admit(other, event)

    assert await desk.kinds_of_lanes() == {"key": 2}


@pytest.mark.rule("EN-15")
async def test_a_batch_takes_positions_in_its_order_and_later_batches_go_on(desk: Desk) -> None:
    events = [an_event(chat=f"chat-{n % 3}") for n in range(30)]

    await desk.admit(BOUND, *events[:17])
    await desk.admit(BOUND, *events[17:])

    for chat in range(3):
        wanted = [event.event_id for event in events if event.chat == f"chat-{chat}"]
        runs = [run for run in await desk.runs() if run["event_id"] in wanted]
        assert [run["event_id"] for run in runs] == wanted
        assert [run["position"] for run in runs] == list(range(1, 11))


@pytest.mark.rule("EN-15", "EN-14")
async def test_concurrent_batches_over_the_same_lanes_number_without_gap_and_without_deadlock(
    desk: Desk,
) -> None:
    order = random.Random(7)

    async def admit_some(number: int) -> None:
        for _ in range(5):
            chats = [f"chat-{n}" for n in range(40)]
            order.shuffle(chats)
            await desk.admit(BOUND, *[an_event(chat=chat) for chat in chats])

    await asyncio.gather(*[admit_some(n) for n in range(6)])

    by_lane: dict[int, list[int]] = {}
    for run in await desk.runs():
        by_lane.setdefault(run["lane_id"], []).append(run["position"])
    assert len(by_lane) == 40
    assert all(positions == list(range(1, 31)) for positions in by_lane.values())
    assert await desk.deadlocks() == 0


@pytest.mark.rule("EN-15")
async def test_a_free_lane_becomes_ready_and_an_owned_one_does_not(desk: Desk) -> None:
    free, owned = an_event(chat="free"), an_event(chat="owned")
    await desk.admit(BOUND, free, owned)
    runs = {run["event_id"]: run for run in await desk.runs()}
    await desk.database.execute("delete from ready")
    await desk.database.execute(
        "update lanes set owner_run = $1, epoch = 1 where id = $2",
        runs[owned.event_id]["id"],
        runs[owned.event_id]["lane_id"],
    )

    await desk.admit(BOUND, an_event(chat="free"), an_event(chat="owned"))

    rows = await desk.database.fetch("select lane_id, agent, account from ready")
    assert [tuple(row) for row in rows] == [(runs[free.event_id]["lane_id"], "helper", "lab/a")]


@pytest.mark.rule("EN-15")
async def test_a_lane_whose_head_waits_stays_due_when_its_head_is(desk: Desk) -> None:
    await desk.admit(BOUND, an_event(chat="c"))
    await desk.database.execute("update runs set due_at = now() + interval '1 hour'")
    await desk.database.execute("update ready set due_at = now() + interval '1 hour'")

    outcomes = await desk.admit(BOUND, an_event(chat="c"))

    [row] = await desk.database.fetch("select due_at > now() + interval '50 minutes' as later from ready")
    assert [type(outcome) for outcome in outcomes] == [Admitted]
    assert row["later"]


async def test_a_conversation_is_what_the_identity_says_and_its_thread_is_part_of_the_chat(
    desk: Desk,
) -> None:
    await desk.admit(
        BOUND,
        an_event(chat="c", audience="direct"),
        an_event(chat="c", audience="channel"),
        an_event(chat="c", audience="channel", thread="t"),
        an_event(chat="c/t", audience="channel"),
        an_event(chat="c", audience="direct", account="b"),
    )

    rows = await desk.database.fetch("select memory_key, channel, account, chat, audience from conversations")
    assert sorted(tuple(row) for row in rows) == [
        ("helper", "lab", "a", "c", "channel"),
        ("helper", "lab", "a", "c", "direct"),
        ("helper", "lab", "a", "c%2Ft", "channel"),
        ("helper", "lab", "a", "c/t", "channel"),
        ("helper", "lab", "b", "c", "direct"),
    ]


@pytest.mark.rule("EN-45")
async def test_a_lane_that_is_pruned_between_finding_and_locking_it_is_made_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, other = an_event(chat="a"), an_event(chat="b"), an_event(chat="c")
    await desk.admit(BY_CHAT, first, second)
    await desk.database.execute("delete from ready")
    await desk.database.execute("delete from runs")
    with monkeypatch.context() as patch:
        # The first statement that finds lanes is told of one that is gone by the time of the lock.
        patch.setattr(store, "FIND_LANES", "select unnest($1::bytea[]) as key")

        outcomes = await desk.admit(BY_CHAT, an_event(chat="a"), an_event(chat="b"), other)

    assert [type(outcome) for outcome in outcomes] == [Admitted] * 3
    assert await desk.kinds_of_lanes() == {"key": 3}
