"""The scope of memory is the exact tuple: no two identities share a lane, whatever stands in their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.event import Event
from schemas.identity import Identity
from tests.support.desk import Desk, a_desk
from tests.support.events import an_agent, an_event
from workers.agents.agent import Agent
from workers.agents.turn import Turn
from workers.intake.policy import candidate
from workers.memory.binding import concurrency_key_of, conversation_lane_key, identity_of

TRICKY = st.text(alphabet=st.sampled_from("ab/|%2FA \u00e9e\u0301.~-_:"), min_size=1, max_size=6)
ANY_ID = st.one_of(
    TRICKY,
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], min_codepoint=0x20, exclude_characters="\x7f"),
        min_size=1,
        max_size=8,
    ),
)
FIELDS = ("memory_key", "channel", "account", "chat", "thread", "audience")
PLACES = st.fixed_dictionaries(
    {field: ANY_ID for field in FIELDS if field != "thread"} | {"thread": st.none() | ANY_ID}
)


def lane_of(place: dict[str, Any]) -> bytes:
    key = place["memory_key"]
    event = an_event(**{name: value for name, value in place.items() if name != "memory_key"})
    agent = an_agent(conversation=key if key.isprintable() else "".join(map(hex, map(ord, key))))
    run = candidate(agent, event, UUID(int=1), None)
    assert run.lane_kind == "conversation"
    assert run.identity == identity_of(str(agent.memory_key), event)
    return run.lane_key


@pytest.mark.rule("CM-18")
@given(PLACES, PLACES)
def test_two_places_that_differ_in_any_part_never_share_a_lane(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assume(one != other)

    assert lane_of(one) != lane_of(other)


@pytest.mark.rule("CM-18", "CM-11")
@given(PLACES, st.sampled_from(FIELDS), ANY_ID)
def test_a_change_of_one_part_alone_is_another_lane(place: dict[str, Any], field: str, value: str) -> None:
    assume(place[field] != value)

    assert lane_of(place) != lane_of(place | {field: value})


@pytest.mark.rule("CM-18")
@given(st.lists(ANY_ID, min_size=2, max_size=2), ANY_ID, st.sampled_from(["/", "|", "%2F", "%7C", "%"]))
def test_a_boundary_that_moves_between_parts_is_another_lane(
    parts: Sequence[str], last: str, sign: str
) -> None:
    shifted: list[dict[str, Any]] = [
        {"chat": parts[0] + sign + parts[1], "thread": last},
        {"chat": parts[0], "thread": parts[1] + sign + last},
        {"chat": parts[0] + sign + parts[1] + sign + last, "thread": None},
    ]
    base: dict[str, Any] = {"memory_key": "k", "channel": "lab", "account": "a", "audience": "direct"}

    assert len({lane_of(base | each) for each in shifted}) == 3


@pytest.mark.rule("CM-18", "CM-20")
@given(st.tuples(*[ANY_ID] * 5), st.tuples(*[ANY_ID] * 5))
def test_the_key_that_callers_may_give_is_as_exact_as_the_lane(
    first: tuple[str, str, str, str, str], second: tuple[str, str, str, str, str]
) -> None:
    one, other = Identity(*first), Identity(*second)

    same = one == other
    assert (concurrency_key_of(one) == concurrency_key_of(other)) is same
    assert (conversation_lane_key(one) == conversation_lane_key(other)) is same


def reciting() -> Agent:
    async def runs(turn: Turn) -> None:
        seen = [exchange.text for exchange in turn.history] + [note.body for note in turn.notes]
        await turn.set_note(f"from {turn.event.text}", f"note of {turn.event.text}")
        await turn.reply(f"{turn.event.text} saw {seen}")

    return an_agent("helper", runs=runs, conversation="k")


async def told(desk: Desk, *events: Event) -> list[str]:
    """Each event's reply, sent before the next event comes."""
    for event in events:
        await desk.admit("helper", event)
        await desk.work()
        await desk.database.execute("update deliveries set state = 'sent', finished_at = now()")
        await desk.database.execute("update items set status = 'sent' where kind = 'reply'")
    return await desk.replies()


@pytest.mark.rule("CM-29", "CM-18")
async def test_private_and_group_audiences_see_nothing_of_each_other(database_url: str) -> None:
    def said(text: str, audience: str) -> Event:
        return an_event(chat="room", text=text, audience=audience)

    async with a_desk(database_url, reciting()) as desk:
        replies = await told(
            desk,
            said("secret", "direct"),
            said("hello all", "team"),
            said("hello some", "team:leads"),
            said("again", "direct"),
        )

    assert replies[:3] == ["secret saw []", "hello all saw []", "hello some saw []"]
    assert replies[3] == "again saw ['secret', 'secret saw []', 'note of secret']"


@pytest.mark.rule("CM-82", "CM-18")
async def test_a_thread_is_a_chat_of_its_own_and_no_chat_can_be_named_like_it(database_url: str) -> None:
    async with a_desk(database_url, reciting()) as desk:
        replies = await told(
            desk,
            an_event(chat="room", text="main"),
            an_event(chat="room", thread="t", text="thread"),
            an_event(chat="room/t", text="look-alike"),
        )

    assert replies == ["main saw []", "thread saw []", "look-alike saw []"]


@pytest.mark.rule("CM-82")
async def test_a_channel_that_opts_out_shares_the_chats_memory_and_replies_into_the_thread(
    database_url: str,
) -> None:
    def in_thread(text: str, thread: str) -> Event:
        return an_event(chat="room", text=text, reply_address=f"room#{thread}")

    async with a_desk(database_url, reciting()) as desk:
        replies = await told(desk, in_thread("one", "t1"), in_thread("two", "t2"))
        addresses = await desk.rows(
            "select a.address from deliveries d join addresses a on a.id = d.address_id order by d.position"
        )
        conversations = await desk.rows("select chat from conversations")

    assert replies[1] == "two saw ['one', 'one saw []', 'note of one']"
    assert [row["address"] for row in addresses] == ["room#t1", "room#t2"]
    assert conversations == [{"chat": "room"}]
