"""The transcript on a real Postgres: what is recorded once, what is read back, what is trimmed."""

from datetime import timedelta

import pytest

from schemas.run import new_uuid7
from tests.memory.desk import MemoryDesk
from workers.memory import store
from workers.memory.limits import Limits
from workers.memory.recall import HistoryItem, select

MONTH = timedelta(days=30)


async def history_of(
    desk: MemoryDesk, lane_id: int, current: str = "", max_items: int = 20
) -> list[HistoryItem]:
    async with desk.db.transaction() as tx:
        found = await store.read_history(tx, [lane_id], [0], [current], max_items, MONTH)
    return found[lane_id]


@pytest.mark.rule("CM-34", "CM-30")
async def test_accepted_inputs_and_sent_replies_are_read_and_open_ones_only_counted(desk: MemoryDesk) -> None:
    lane = (await desk.a_lane()).lane_id
    await desk.an_item(lane, "hi")
    await desk.an_item(lane, "hello", kind="reply", status="sent")
    for status in ("pending", "unknown", "failed"):
        await desk.an_item(lane, f"{status} words", kind="reply", status=status)
    await desk.an_item(lane, "withheld words", status="withheld")

    history = await history_of(desk, lane)

    assert [(item.kind, item.text) for item in history] == [
        ("reply", None),
        ("reply", None),
        ("reply", "hello"),
        ("input", "hi"),
    ]
    snapshot = select(history, [], Limits())
    assert [exchange.text for exchange in snapshot.history] == ["hi", "hello"]
    assert snapshot.omitted_items == 2


@pytest.mark.rule("CM-39", "CM-42")
async def test_the_event_that_runs_now_is_left_out_and_the_newest_are_read(desk: MemoryDesk) -> None:
    lane = (await desk.a_lane()).lane_id
    for number in range(8):
        await desk.an_item(lane, f"m{number}")
        await desk.an_item(lane, None, kind="reply", status="unknown")
    current = await desk.an_item(lane, "now")

    history = await history_of(desk, lane, current, max_items=3)

    assert [item.text for item in history if item.text] == ["m7", "m6", "m5"]


@pytest.mark.rule("CM-29", "CM-46")
async def test_lanes_and_generations_stay_apart_and_old_items_are_not_read(desk: MemoryDesk) -> None:
    one, two = (await desk.a_lane()).lane_id, (await desk.a_lane()).lane_id
    await desk.an_item(one, "of one")
    await desk.move_clock(MONTH - timedelta(minutes=1))
    await desk.an_item(two, "of two")

    async with desk.db.transaction() as tx:
        before = await store.read_history(tx, [one, two], [0, 0], ["", ""], 20, MONTH)
        after_reset = await store.read_history(tx, [one, two], [1, 1], ["", ""], 20, MONTH)
    await desk.move_clock(MONTH + timedelta(minutes=1))

    assert {lane: [item.text for item in items] for lane, items in before.items()} == {
        one: ["of one"],
        two: ["of two"],
    }
    assert after_reset == {one: [], two: []}
    assert await history_of(desk, one) == []


@pytest.mark.rule("CM-81")
async def test_an_input_is_recorded_once_for_two_agents_with_one_key(desk: MemoryDesk) -> None:
    lane = (await desk.a_lane()).lane_id
    async with desk.db.transaction() as tx:
        for text in ("first", "second telling"):
            await store.record_inputs(tx, [store.input_item(lane, 0, new_uuid7(), "e-1", text, 100)])

    assert [item.text for item in await history_of(desk, lane)] == ["first"]


@pytest.mark.rule("CM-80", "CM-45")
async def test_an_input_over_the_item_limit_keeps_metadata_only_and_counts_as_omitted(
    desk: MemoryDesk,
) -> None:
    lane = (await desk.a_lane()).lane_id
    async with desk.db.transaction() as tx:
        await store.record_inputs(
            tx,
            [
                store.input_item(lane, 0, new_uuid7(), "e-1", "é" * 5, 10),
                store.input_item(lane, 0, new_uuid7(), "e-2", "é" * 5 + "x", 10),
            ],
        )

    newest, older = await history_of(desk, lane)
    assert (newest.text, newest.body_bytes) == (None, 11)
    assert (older.text, older.body_bytes) == ("é" * 5, 10)
    assert select([newest, older], [], Limits()).omitted_items == 1


@pytest.mark.rule("CM-51", "CM-58")
async def test_trim_deletes_expired_and_surplus_items_and_none_of_the_active_turn(desk: MemoryDesk) -> None:
    scope = await desk.a_lane()
    lane = scope.lane_id
    await desk.an_item(lane, "expired")
    await desk.an_item(lane, "expired, of the active turn", run_id=scope.run_id)
    await desk.move_clock(MONTH + timedelta(seconds=1))
    for number in range(6):
        await desk.an_item(lane, f"m{number}")

    async with desk.db.transaction() as tx:
        await store.trim(tx, [lane], [0], 4, MONTH)
    rows = await desk.db.fetch("select body from items order by id")

    assert [row["body"] for row in rows] == ["expired, of the active turn", "m2", "m3", "m4", "m5"]
