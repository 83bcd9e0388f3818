"""A long reply is cut once, when it is journalled; its pieces go in order, and after a crash from where it failed."""

import pytest

from tests.support.events import an_event
from tests.support.running import Site
from tests.worker.conftest import MakeSite

TEXT = " ".join(f"word{number:02}" for number in range(24))


async def assert_whole(site: Site) -> None:
    messages = site.received()
    [run] = await site.rows("select id from runs")
    assert " ".join(message.text.strip() for message in messages) == f"echo: {TEXT}"
    assert all(len(message.text) <= 40 for message in messages)
    assert [message.key for message in messages] == [f"{run['id']}:1:0:{n}" for n in range(len(messages))]
    assert len(messages) >= 5
    [item] = await site.rows("select body, status from items where kind = 'reply'")
    assert item == {"body": f"echo: {TEXT}", "status": "sent"}


@pytest.mark.rule("EN-36")
@pytest.mark.parametrize("dies_at", ["before request#3", "accepted, not answered#2"])
async def test_pieces_arrive_in_order_once_each_whoever_dies_between_them(
    make_site: MakeSite, dies_at: str
) -> None:
    async with make_site(lease_seconds=1.0) as site:
        site.start(name="others", roles=("intake", "turns"))
        await site.publish(an_event(text=TEXT))
        await site.start(roles=("delivery",), dies_at=dies_at).died()
        assert len(site.received()) == 2

        site.start(name="last", roles=("delivery",))
        await site.settled(1)

        await assert_whole(site)
        attempts = await site.rows("select attempt from deliveries order by chunk")
        assert [row["attempt"] for row in attempts].count(1) >= len(attempts) - 1
