"""A worker process killed with -9 at every commit and produce point, one life after the other: no reply is lost."""

import pytest

from tests.support.events import an_event
from tests.support.running import Site
from tests.worker.conftest import MakeSite
from workers.channels.port import Capability

TURN_POINTS = [
    "claim.before_commit",
    "claim.committed",
    "journal.before_commit",
    "journal.committed",
    "journal.committed#2",
    "settle.before_commit",
    "settle.committed",
]
DELIVERY_POINTS = [
    "claim written",
    "claim committed",
    "before request",
    "accepted, not answered",
    "sent",
    "receipt written",
    "receipt committed",
]


async def lives(site: Site, points: list[str], **changes: object) -> None:
    """One life a point: each is given an event and dies at its point; a last one finishes what they left."""
    for number, point in enumerate(points):
        child = site.start(dies_at=point, **changes)
        await site.publish(an_event(event_id=f"e{number}", chat=f"c{number}", text=f"m{number}"))
        await child.died()
    site.start(**changes)
    await site.settled(len(points))


async def assert_nothing_lost(site: Site, events: int, *, exactly: bool) -> None:
    runs = await site.rows("select event_id, status from runs order by event_id")
    assert {run["event_id"]: run["status"] for run in runs} == {f"e{n}": "succeeded" for n in range(events)}
    assert len(runs) == events
    keys: dict[str, set[str]] = {}
    for message in site.received():
        keys.setdefault(message.text, set()).add(message.key)
    assert set(keys) == {f"echo: m{n}" for n in range(events)}
    assert all(len(each) == 1 for each in keys.values())
    if exactly:
        assert len(site.received()) == events
    states = await site.rows("select distinct state from deliveries")
    assert [row["state"] for row in states] == ["sent"]


@pytest.mark.rule("EN-7")
async def test_intake_killed_around_its_commit_makes_one_run_an_event(site: Site) -> None:
    points = ["admission.before_commit", "admission.committed"]

    await lives(site, points)

    await assert_nothing_lost(site, len(points), exactly=True)
    assert await site.value("select count(*) from reservations") == len(points)


@pytest.mark.rule("EN-35")
@pytest.mark.parametrize(
    ("capability", "points"),
    [
        (Capability.IDEMPOTENT, TURN_POINTS + DELIVERY_POINTS),
        (Capability.LOOK_UP_DEFINITE, ["before request", "accepted, not answered", "receipt written"]),
    ],
)
async def test_killed_from_claim_to_receipt(
    make_site: MakeSite, capability: Capability, points: list[str]
) -> None:
    async with make_site(capability=capability) as site:
        site.start(name="intake", roles=("intake",))

        await lives(site, points, roles=("turns", "delivery"))

        await assert_nothing_lost(site, len(points), exactly=True)
