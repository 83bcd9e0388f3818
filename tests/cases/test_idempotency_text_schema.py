"""Faults of identity, text and schemas: what is the same event, what text is, and what a newer producer may add."""

import pytest

from tests.cases.records import signed_as, with_more_fields
from tests.support.events import an_event, sealed
from tests.support.running import Child, counted
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite

SCRIPTED = "tests.cases.apps:scripted"
pytestmark = pytest.mark.kafka


async def test_pb_19_a_retry_whose_first_delivery_never_came_is_answered(make_site: MakeSite) -> None:
    """vercel/chat issue 666: every retry was dropped, so an event whose first delivery was lost was lost."""
    async with make_site(app=SCRIPTED) as site:
        site.start()
        only_a_retry = an_event(text="only a retry", message_id="s1", payload={"retry": 2})
        first, again = (
            an_event(event_id=f"s2-{n}", chat="c", message_id="s2", text="said") for n in range(2)
        )
        await site.publish(only_a_retry, first, again, again)

        await site.settled(2)

        assert sorted(site.texts()) == ["answer to only a retry", "answer to said"]


async def test_pb_21_a_run_that_kills_its_process_ends_and_its_neighbours_are_answered(
    make_site: MakeSite,
) -> None:
    """dbos-inc/dbos-transact-py pull 113: recovered again and again, and in the end it stopped all recovery."""
    async with make_site(app=SCRIPTED) as site:
        await site.publish(an_event(text="die"), an_event(text="m0"), an_event(text="m1"))
        for _ in range(12):
            worker = site.start()

            async def is_over(worker: Child = worker) -> bool:
                open_runs = await site.value("select count(*) from runs where finished_at is null")
                known = await site.value("select count(*) from runs")
                return not worker.alive or (known == 3 and open_runs == 0)

            await eventually("it died, or all is over", is_over)
            if worker.alive:
                break

        await site.settled(3)
        assert worker.alive
        assert sorted(site.texts()) == ["answer to m0", "answer to m1"]
        [run] = await site.rows("select status, reason from runs where status <> 'succeeded'")
        assert (run["status"], bool(run["reason"])) == ("failed", True)
        # Beside neighbours a crash is charged to nobody: of 64 slots it is alone after six of them, and then has three.
        assert 3 <= site.notes().count("die") <= 9


async def test_pb_29_a_nul_in_a_text_is_replaced_and_an_escaped_one_is_text(make_site: MakeSite) -> None:
    """langchain-ai/langgraph issue 1878: U+0000 raised at the write, after the run had finished."""
    async with make_site(app=SCRIPTED) as site:
        site.start()
        await site.publish(an_event(text="a\x00b"), an_event(text=r"a\u0000b"))

        await site.settled(2)

        assert sorted(site.texts()) == [r"answer to a\u0000b", "answer to a\ufffdb"]


async def test_pb_30_a_lone_surrogate_does_not_poison_its_conversation(make_site: MakeSite) -> None:
    """anomalyco/opencode issue 14630: once stored, every later request of that conversation was refused."""
    async with make_site(app=SCRIPTED) as site:
        site.start()
        first, second = (an_event(chat="c7", text=text) for text in ("SURROGATE", "hi"))
        await site.publish(signed_as(first, first.encode().replace(b"SURROGATE", rb"\ud800 ok")), second)

        await site.settled(2)

        assert site.texts() == ["answer to \ufffd ok", "answer to hi"]


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
async def test_pb_32_what_is_no_json_number_is_refused_and_its_neighbour_answered(
    make_site: MakeSite, literal: bytes
) -> None:
    """apify/apify-client-python pull 87: default encoders write NaN and Infinity, which other parsers refuse."""
    async with make_site(app=SCRIPTED) as site:
        worker = site.start()
        event, good = an_event(payload={"score": "HERE"}), an_event(text="good")
        await site.publish(signed_as(event, event.encode().replace(b'"HERE"', literal)), good)

        await site.settled(1)

        assert site.texts() == ["answer to good"]
        assert counted(await worker.scrape(), "parley_dead_letters_total", reason="invalid_json") == 1


async def test_pb_77_a_field_that_nobody_knows_changes_nothing(make_site: MakeSite) -> None:
    """RedHatInsights/insights-host-inventory pull 4518: a producer was deployed first, all its records were refused."""
    async with make_site(app=SCRIPTED) as site:
        worker = site.start()
        event = an_event(text="hello")
        newer = with_more_fields(event, locale_hint="de", Text="another key", extra={"deep": [1]})
        wrong = with_more_fields(an_event(), text=7)
        await site.publish(newer, sealed(event), wrong)

        await site.settled(1)

        async def both_were_judged() -> bool:
            metrics = await worker.scrape()
            duplicates = counted(metrics, "parley_events_total", outcome="duplicate")
            return (duplicates, counted(metrics, "parley_dead_letters_total")) == (1, 1)

        await eventually("the same event is a duplicate, the wrong one refused", both_were_judged)
        assert site.texts() == ["answer to hello"]
