"""What every channel must do whatever its platform: `ChannelContract` runs over each kind of channel.

A rig says how to make the far end misbehave. A subclass gives a `rig` fixture.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from workers.channels.port import (
    Absent,
    Capability,
    Channel,
    Found,
    NotSent,
    Outgoing,
    Refused,
    Sent,
    Uncertain,
    Unsure,
)
from workers.channels.splitting import size_of

QUICK = timedelta(seconds=0.3)


class Rig(Protocol):
    """A channel and its far end."""

    @property
    def channel(self) -> Channel: ...

    def misbehave(self, how: str) -> None:
        """At the next request: refuse, rate_limit (7 s), server_error, stall, drop or store_then_drop."""

    def held(self) -> list[str]:
        """The texts that the far end holds, in the order of arrival."""


def an_outgoing(channel: Channel, text: str = "hello", key: str | None = None) -> Outgoing:
    run_id = uuid.uuid4()
    return Outgoing(
        delivery_id=uuid.uuid4(),
        key=key or f"{run_id}:0:0",
        channel=channel.name,
        account="default",
        address="chat-1",
        text=text,
        attempt=1,
        first_sent_at=datetime.now(UTC),
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )


class ChannelContract:
    """Inherit it, and give a fixture `rig`."""

    @pytest.mark.rule("EN-33")
    async def test_an_accepted_message_is_sent_and_held_once(self, rig: Rig) -> None:
        outcome = await rig.channel.send(an_outgoing(rig.channel), QUICK)

        assert isinstance(outcome, Sent)
        assert rig.held() == ["hello"]

    @pytest.mark.rule("EN-33")
    @pytest.mark.parametrize("how", ["server_error", "stall", "drop", "store_then_drop"])
    async def test_an_answer_that_does_not_come_is_uncertain(self, rig: Rig, how: str) -> None:
        rig.misbehave(how)

        assert isinstance(await rig.channel.send(an_outgoing(rig.channel), QUICK), Uncertain)

    @pytest.mark.rule("EN-33")
    async def test_a_refusal_is_final(self, rig: Rig) -> None:
        rig.misbehave("refuse")

        assert isinstance(await rig.channel.send(an_outgoing(rig.channel), QUICK), Refused)
        assert rig.held() == []

    @pytest.mark.rule("EN-31")
    async def test_a_rate_limit_names_its_wait_and_is_no_failure(self, rig: Rig) -> None:
        rig.misbehave("rate_limit")

        outcome = await rig.channel.send(an_outgoing(rig.channel), QUICK)

        assert isinstance(outcome, NotSent)
        assert outcome.rate_limited
        assert outcome.retry_after == timedelta(seconds=7)

    @pytest.mark.rule("EN-32", "EN-34")
    async def test_a_repeat_under_the_same_key_is_held_once_where_that_is_declared(self, rig: Rig) -> None:
        outgoing = an_outgoing(rig.channel)
        rig.misbehave("store_then_drop")
        await rig.channel.send(outgoing, QUICK)

        outcome = await rig.channel.send(replace(outgoing, attempt=2), QUICK)

        assert isinstance(outcome, Sent)
        idempotent = rig.channel.capability in (Capability.IDEMPOTENT, Capability.IDEMPOTENT_WINDOW)
        assert len(rig.held()) == (1 if idempotent else 2)

    @pytest.mark.rule("EN-34")
    async def test_a_look_up_tells_there_from_not_there_where_that_is_declared(self, rig: Rig) -> None:
        there, not_there = an_outgoing(rig.channel, "there"), an_outgoing(rig.channel, "not there")
        rig.misbehave("store_then_drop")
        await rig.channel.send(there, QUICK)

        answers = [await rig.channel.look_up(each, QUICK) for each in (there, not_there)]

        asks = rig.channel.capability in (Capability.LOOK_UP_DEFINITE, Capability.LOOK_UP_POSITIVE)
        assert [type(answer) for answer in answers] == ([Found, Absent] if asks else [Unsure, Unsure])

    @pytest.mark.rule("EN-34")
    async def test_declared_times_and_window_fit_the_capability(self, rig: Rig) -> None:
        channel = rig.channel

        assert channel.transport_timeout > timedelta(0)
        assert channel.settling_time >= timedelta(0)
        assert (channel.window is not None) == (channel.capability is Capability.IDEMPOTENT_WINDOW)

    @pytest.mark.rule("EN-36")
    async def test_chunks_fit_the_limit_and_are_the_reply_again(self, rig: Rig) -> None:
        limit, unit = rig.channel.size_limit, rig.channel.size_unit
        reply = "\U0001f600" * limit + " and words " * limit

        chunks = rig.channel.split(reply)

        assert "".join(chunks) == reply
        assert max(size_of(chunk, unit) for chunk in chunks) <= limit
        assert isinstance(await rig.channel.send(an_outgoing(rig.channel, chunks[0]), QUICK), Sent)
