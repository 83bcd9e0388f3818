"""Faults of schemas that grow: what nobody knows yet must neither be refused nor make another event of the same."""

from typing import Any

import orjson
import pytest

from tests.cases.records import signed_as, with_more_fields
from tests.support.events import an_event, sealed
from tests.support.running import Child, counted
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite
from workers.operations.dead import read_letters

COPIES = 5


@pytest.mark.kafka
async def test_pb_77_a_newer_producer_is_understood_at_every_level_and_a_wrong_one_is_quarantined(
    make_site: MakeSite,
) -> None:
    """insights-host-inventory pull 4518, fyndiq/eventsourcing_helpers pull 103: one unknown field, and all was refused.

    The replicas start one after the other while the records come, as in a rolling start.
    """
    async with make_site() as site:
        event = an_event(text="hello")
        plain: dict[str, Any] = orjson.loads(event.encode())
        nested = {**plain, "principal": {**plain["principal"], "mood": "good", "ID": "another"}}
        variants = [
            sealed(event),
            with_more_fields(event, locale_hint="de"),
            with_more_fields(event, Text="another", TEXT=7, extra={"deep": [{"er": None}]}),
            signed_as(event, orjson.dumps(nested)),
            signed_as(event, orjson.dumps(dict(reversed(plain.items())))),
        ]
        assert len(variants) == COPIES
        without_principal = {name: value for name, value in plain.items() if name != "principal"}
        wrong = [
            with_more_fields(an_event(), text=7),
            signed_as(an_event(), orjson.dumps(without_principal)),
            with_more_fields(an_event(), principal="u1"),
        ]
        first = site.start()
        await site.publish(*variants[:2], wrong[0])
        await site.answered(1)
        second = site.start()
        await second.serving()
        await site.publish(*variants[2:], *wrong[1:])

        async def all_were_judged() -> bool:
            return await total(first, second) == (1, COPIES - 1)

        await eventually("the same event each time", all_were_judged)
        letters = await eventually("three letters", lambda: three_letters(site.kafka))
        await site.settled(1)
        assert site.texts() == ["echo: hello"]
        assert site.notes().count(f"echo ran {event.event_id}") == 1
        assert len({letter.key for letter in letters}) == len(wrong)
        assert first.alive
        assert second.alive


async def total(*workers: Child) -> tuple[float, float]:
    scrapes = [await worker.scrape() for worker in workers]
    admitted, duplicate = (
        sum(counted(text, "parley_events_total", outcome=outcome) for text in scrapes)
        for outcome in ("admitted", "duplicate")
    )
    return admitted, duplicate


async def three_letters(kafka: Any) -> Any:
    letters = await read_letters(kafka)
    return letters if len(letters) == 3 else None
