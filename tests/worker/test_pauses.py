"""A worker process that is stopped, overtaken and continued writes nothing of what it lost, and then works on."""

import signal

import pytest

from tests.support.events import an_event
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite

PATIENT = "tests.worker.apps:patient"


@pytest.mark.rule("EN-18")
async def test_a_continued_worker_gives_up_its_turns_and_takes_new_ones(make_site: MakeSite) -> None:
    async with make_site(app=PATIENT, lease_seconds=1.0, roles=("turns", "delivery")) as site:
        site.start(name="intake", roles=("intake",))
        old = site.start(name="old")
        await site.publish(an_event(chat="c", text="one"), an_event(chat="d", text="two"))
        await eventually("the old one has both", lambda: len(site.notes()) == 2)
        old.signal(signal.SIGSTOP)
        new = site.start(name="new")
        await eventually("the new one has both", lambda: len(site.notes()) == 4)

        old.signal(signal.SIGCONT)
        stopped = [f"old was stopped in {text}" for text in ("one", "two")]
        await eventually("the old one let go", lambda: set(stopped) <= set(site.notes()))
        (site.life.ledger.parent / "go").touch()
        await site.settled(2)
        await new.kill()
        await site.publish(an_event(chat="e", text="three"))
        await site.settled(3)

        assert sorted(site.texts()) == ["new says one", "new says two", "old says three"]
        assert not any(note.startswith("old went on with") for note in site.notes() if "three" not in note)
        assert old.alive
        assert await site.rows("select distinct crashes, status from runs order by crashes") == [
            {"crashes": 0, "status": "succeeded"},
            {"crashes": 1, "status": "succeeded"},
        ]
        log = old.life.log.read_text("utf-8")
        assert '"event":"session.lost"' in log
