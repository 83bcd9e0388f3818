"""What enters a conversation: one item for an event, whole in its own turn, and only as large as may be kept."""

from datetime import timedelta

import pytest

from tests.support.desk import a_desk
from tests.support.events import an_agent, an_event
from workers.agents.turn import Turn
from workers.memory.limits import Limits


@pytest.mark.rule("CM-80", "CM-49")
async def test_an_oversize_input_reaches_its_own_turn_whole_and_is_only_counted_later(
    database_url: str,
) -> None:
    large = "é" * 8 + "x"
    seen: list[tuple[str, list[str], int]] = []

    async def runs(turn: Turn) -> None:
        assert turn.snapshot is not None
        past = [exchange.text for exchange in turn.history]
        seen.append((turn.event.text, past, turn.snapshot.omitted_items))

    agent = an_agent("helper", runs=runs, conversation=True)
    async with a_desk(database_url, agent, limits=Limits(max_item_bytes=16)) as desk:
        texts = (large, "é" * 8, "now")
        await desk.admit("helper", *(an_event(chat="c", text=text) for text in texts))
        await desk.work()
        kept = await desk.rows("select body, body_bytes from items order by id")

    assert seen == [(large, [], 0), ("é" * 8, [], 1), ("now", ["é" * 8], 1)]
    assert [(row["body"] is None, row["body_bytes"]) for row in kept] == [(True, 17), (False, 16), (False, 3)]


@pytest.mark.rule("CM-81", "CM-16", "CM-39")
async def test_two_agents_with_one_key_record_an_event_once_and_neither_recalls_it_as_past(
    database_url: str,
) -> None:
    seen: list[tuple[str, list[str]]] = []

    async def runs(turn: Turn) -> None:
        seen.append((turn.agent.name, [exchange.text for exchange in turn.history]))

    agents = [an_agent(name, runs=runs, conversation="shared") for name in ("one", "two")]
    async with a_desk(database_url, *agents, recall_wait=timedelta(0)) as desk:
        for text in ("first", "second"):
            event = an_event(chat="c", text=text)
            for name in ("one", "two"):
                await desk.admit(name, event)
        await desk.work()
        recorded = await desk.value("select count(*) from items where kind = 'input'")

    assert seen == [("one", []), ("two", []), ("one", ["first"]), ("two", ["first"])]
    assert recorded == 2
