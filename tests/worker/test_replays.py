"""A model agent killed in mid-turn goes on in another process from its journal."""

import pytest

from tests.support.events import an_event
from tests.support.running import Site
from tests.worker.conftest import MakeSite

BEFORE = ["asked 1", "fetched", "asked 2", "charged 5", "peeked"]
CASHIER = "tests.worker.apps:cashier"


async def killed_in_flight(site: Site) -> None:
    """One life that dies with `charge` and `peek` in flight."""
    child = site.start(options={"dies": True})
    await site.publish(an_event(text="pay"))
    await child.died()
    assert sorted(site.notes()) == sorted(BEFORE)


async def steps(site: Site) -> dict[str, str]:
    rows = await site.rows("select step, call, name, state from run_steps order by step, call")
    return {f"{row['step']}:{row['call']} {row['name']}": row["state"] for row in rows}


@pytest.mark.rule("EN-22")
@pytest.mark.parametrize("options", [{}, {"version": "2", "on_change": "continue"}])
async def test_only_what_was_in_flight_repeats_and_only_if_it_may(
    make_site: MakeSite, options: dict[str, str]
) -> None:
    async with make_site(app=CASHIER) as site:
        await killed_in_flight(site)
        assert await steps(site) == {
            "0:0 model": "finished",
            "0:1 fetch": "finished",
            "1:0 model": "finished",
            "1:1 charge": "started",
        }

        site.start(options=options)
        await site.settled(1)

        assert site.notes()[len(BEFORE) :] == ["peeked", "asked 3", "asked 4"]
        assert "".join(site.texts()) == "charge=interrupted, outcome unknown; peek=seen"
        assert set((await steps(site)).values()) == {"finished"}
        [run] = await site.rows("select status, crashes, usage from runs")
        assert (run["status"], run["crashes"]) == ("succeeded", 1)


@pytest.mark.rule("EN-22")
async def test_another_version_fails_the_run_and_executes_no_tool(make_site: MakeSite) -> None:
    async with make_site(app=CASHIER) as site:
        await killed_in_flight(site)

        site.start(options={"version": "2"})
        await site.settled(1)

        assert sorted(site.notes()) == sorted(BEFORE)
        assert await site.rows("select status, reason from runs") == [
            {"status": "failed", "reason": "replay_diverged"}
        ]
        assert site.texts() == []
