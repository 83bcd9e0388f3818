"""Faults that users of Kafka consumers met: records lost, run twice, or standing in the way of all others."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.events import an_event
from tests.support.running import Child, Site, counted
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite

SCRIPTED = "tests.cases.apps:scripted"
pytestmark = pytest.mark.kafka


async def test_pb_01_records_that_come_again_to_another_member_are_answered_once(make_site: MakeSite) -> None:
    """faust-streaming/faust issue 502: a new replica handled again what was done and not yet committed."""
    async with make_site(app=SCRIPTED) as site:
        texts = [f"m{number}" for number in range(3)]
        first = site.start()
        await site.publish(*(an_event(text=text) for text in texts))
        await site.settled(3)
        await first.kill()

        second = site.start(group=f"{site.life.group}-anew")
        await eventually("they were delivered again", _duplicates_of(second, 3))

        await site.settled(3)
        assert sorted(site.notes()) == texts
        assert sorted(site.texts()) == [f"answer to {text}" for text in texts]


async def test_pb_03_what_is_unfinished_behind_finished_ones_survives_a_kill(make_site: MakeSite) -> None:
    """faust-streaming/faust issue 312: with gaps in the acknowledgements a later offset was committed."""
    async with make_site(app=SCRIPTED) as site:
        first = site.start()
        await site.publish(an_event(text="block"), *(an_event(text=f"m{number}") for number in range(4)))
        await site.answered(4)
        await eventually("four are settled", _ended(site, 4))
        await first.kill()
        (site.life.ledger.parent / "go").touch()

        site.start()

        await site.settled(5)
        assert sorted(site.texts()) == ["answer to block", *(f"answer to m{number}" for number in range(4))]
        assert sorted(site.notes()) == ["block", "block", *(f"m{number}" for number in range(4))]


async def test_pb_04_an_event_whose_handler_failed_is_tried_again_also_after_a_restart(
    make_site: MakeSite,
) -> None:
    """robinhood/faust issue 604: after an exception the agent went on at a later offset."""
    async with make_site(app=SCRIPTED) as site:
        first = site.start()
        await site.publish(an_event(text="fail 2"), an_event(text="m"), an_event(text="fail 9"))
        await site.answered(1)
        await eventually("one is settled", _ended(site, 1))
        await eventually("it failed once", lambda: "fail 2" in site.notes())
        await first.kill()

        site.start()

        await site.settled(3)
        assert sorted(site.texts()) == ["answer to fail 2", "answer to m"]
        assert site.notes().count("m") == 1
        states = await site.rows("select status, reason from runs where status <> 'succeeded'")
        assert [(row["status"], bool(row["reason"])) for row in states] == [("failed", True)]


async def test_pb_05_a_record_that_cannot_be_decoded_stops_nobody(make_site: MakeSite) -> None:
    """robinhood/faust issue 586: one undecodable value ended the stream without a word."""
    async with make_site(app=SCRIPTED) as site:
        worker = site.start()
        chat = an_event(text="first")
        await site.publish(chat)
        await site.producer.send_many(site.kafka.events_topic, [(chat.record_key, b"\xff\xfe{", [])])
        await site.publish(an_event(text="second", chat=chat.chat))

        await site.settled(2)

        assert sorted(site.texts()) == ["answer to first", "answer to second"]
        assert counted(await worker.scrape(), "parley_dead_letters_total") == 1
        await worker.scrape("/readyz")
        assert "\\xff" not in worker.end_of_log()


def _ended(site: Site, runs: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return bool(await site.value("select count(*) = $1 from runs where finished_at is not null", runs))

    return holds


def _duplicates_of(worker: Child, count: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return counted(await worker.scrape(), "parley_events_total", outcome="duplicate") >= count

    return holds
