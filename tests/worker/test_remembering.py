"""A worker is killed with -9 in a turn that remembers: the next one goes on with the bytes that the first was shown."""

from pathlib import Path

import pytest

from tests.support.events import an_event
from tests.support.waiting import eventually
from tests.worker.conftest import MakeSite

SHOWN = "was shown ['note Kyoto', 'noted'] {'city': 'Kyoto'}"
TURN = "select epoch, snapshot, snapshot_digest from turns"
MEANWHILE = (
    "update notes set body = 'Osaka', body_bytes = 5, updated_at = parley_now() where key = 'city'",
    "update items set body = 'rewritten', body_bytes = 9 where kind = 'input' and event_id = 'e1'",
    "delete from items where kind = 'reply'",
)


@pytest.mark.rule("CM-38", "CM-39", "CM-74")
async def test_the_turn_of_a_killed_worker_goes_on_with_the_same_snapshot_and_edits_once(
    make_site: MakeSite,
) -> None:
    async with make_site(app="tests.worker.apps:remembering") as site:
        first = site.start(name="first")
        await site.publish(an_event(event_id="e1", chat="c", text="note Kyoto"))
        await site.settled(1)
        await site.publish(an_event(event_id="e2", chat="c", text="where do I live?"))
        await eventually("the first was shown it", lambda: site.notes() == [f"first {SHOWN}"])
        [before] = await site.rows(TURN)
        await first.kill()
        for change in MEANWHILE:
            await site.database.execute(change)

        site.start(name="second")
        await eventually("the second was shown the same", lambda: site.notes()[1:] == [f"second {SHOWN}"])
        [after] = await site.rows(TURN)
        Path(site.life.folder, "go").touch()
        await site.settled(2)

        assert (after["snapshot"], after["snapshot_digest"]) == (
            before["snapshot"],
            before["snapshot_digest"],
        )
        assert after["epoch"] > before["epoch"]
        edits = "select count(*) from note_operations where key = 'asked'"
        assert await site.value(edits) == 1
        assert await site.rows(TURN) == []
        assert site.texts() == ["noted", "answered"]
