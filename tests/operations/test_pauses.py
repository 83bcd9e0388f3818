"""What is paused waits in every worker, what comes in is admitted all the same, and a resume lets it go on."""

from datetime import timedelta

import pytest

from tests.support import delivery
from tests.support.desk import a_desk
from tests.support.events import an_agent, an_event
from workers.operations.errors import ActRefused
from workers.operations.pauses import PauseKind, Target, is_agent_known, list_pauses, pause, resume
from workers.roles.sampling import Sampler
from workers.turns.claim import PAUSED_WAIT

OTHER_EVENTS = {"agent": {}, "channel": {"channel": "hook"}, "account": {"account": "b"}}
TARGETS: dict[PauseKind, Target] = {
    "agent": Target("agent", "echo"),
    "channel": Target("channel", "lab"),
    "account": Target("account", "lab", "a"),
}


@pytest.mark.rule("EN-50")
@pytest.mark.parametrize("kind", TARGETS)
async def test_turns_of_what_is_paused_wait_and_others_run(database_url: str, kind: PauseKind) -> None:
    agents = [an_agent("echo", conversation=True), an_agent("other", conversation=True)]
    async with a_desk(database_url, *agents) as desk:
        await pause(desk.database, TARGETS[kind], "ann", "maintenance")
        await desk.pauses.refresh()

        # Due lanes stay due: work() would go on as long as it may claim one.
        [held] = await desk.admit("echo", an_event())
        [free] = await desk.admit("other" if kind == "agent" else "echo", an_event(**OTHER_EVENTS[kind]))
        while await desk.turn_once():
            pass
        assert (await desk.status(held), await desk.status(free)) == ("queued", "succeeded")
        assert await desk.due() == 1

        await resume(desk.database, TARGETS[kind], "ann")
        await desk.pauses.refresh()
        await desk.work()
        assert await desk.status(held) == "succeeded"


@pytest.mark.rule("EN-50")
async def test_an_account_of_the_same_name_in_another_channel_goes_on(database_url: str) -> None:
    async with a_desk(database_url, an_agent()) as desk:
        await pause(desk.database, Target("account", "hook", "a"), "ann")
        await desk.pauses.refresh()
        [run_id] = await desk.admit("echo", an_event(channel="lab", account="a"))

        await desk.work()

        assert await desk.status(run_id) == "succeeded"


@pytest.mark.rule("EN-50")
async def test_a_pause_that_comes_between_looking_and_locking_holds_too(database_url: str) -> None:
    async with a_desk(database_url, an_agent()) as desk:
        [run_id] = await desk.admit("echo", an_event())
        # As a worker of the version before queues it: no word of its channel.
        await desk.database.execute("update ready set account = 'a'")
        await pause(desk.database, TARGETS["channel"], "ann")
        await desk.pauses.refresh()

        await desk.turn_once()

        assert await desk.status(run_id) == "queued"
        later = await desk.value("select due_at - parley_now() from ready")
        assert timedelta(0) < later <= PAUSED_WAIT


@pytest.mark.rule("EN-50")
@pytest.mark.parametrize("kind", ["channel", "account"])
async def test_nothing_is_sent_where_it_is_paused_until_it_is_resumed(
    database_url: str, kind: PauseKind
) -> None:
    async with delivery.a_desk(database_url) as desk:
        [reply] = await desk.reply("hello")
        await pause(desk.db, TARGETS[kind], "ann")

        assert await desk.send() == 0
        await desk.pass_time(timedelta(days=3))
        assert (await desk.reconciler.run_once()).overdue == 0
        assert (await desk.row(reply))["state"] == "pending"

        await resume(desk.db, TARGETS[kind], "ann")
        assert (await desk.reconciler.run_once()).overdue == 1
        assert (await desk.row(reply))["state"] == "sent"


@pytest.mark.rule("EN-50")
async def test_a_channel_that_asks_for_a_wait_does_not_end_a_pause(database_url: str) -> None:
    async with delivery.a_desk(database_url) as desk:
        await desk.reply("hello")
        await pause(desk.db, TARGETS["account"], "ann")
        await desk.db.execute(
            "insert into send_holds values ('lab', 'a', parley_now() + interval '1 s', 'asked')"
            " on conflict (channel, account) do update"
            " set until = greatest(send_holds.until, excluded.until), reason = excluded.reason"
        )
        await desk.pass_time(timedelta(minutes=1))

        assert await desk.send() == 0


@pytest.mark.rule("EN-50")
async def test_replies_of_a_paused_agent_are_still_sent(database_url: str) -> None:
    async with delivery.a_desk(database_url) as desk:
        await desk.reply("said before")
        await pause(desk.db, TARGETS["agent"], "ann")

        assert await desk.send() == 1


@pytest.mark.rule("EN-50")
async def test_pauses_are_listed_audited_counted_and_not_made_twice(database_url: str) -> None:
    async with a_desk(database_url, an_agent()) as desk:
        await pause(desk.database, TARGETS["account"], "ann", "token is being rotated")
        with pytest.raises(ActRefused, match="paused already"):
            await pause(desk.database, TARGETS["account"], "bob")
        with pytest.raises(ActRefused, match="not paused"):
            await resume(desk.database, TARGETS["channel"], "bob")

        [line] = await list_pauses(desk.database)
        assert (line.kind, line.name, line.account, line.actor) == ("account", "lab", "a", "ann")
        assert await desk.rows("select actor, act, subject from audit") == [
            {"actor": "ann", "act": "pause", "subject": "account lab/a"}
        ]
        await Sampler(desk.database, desk.metrics, {}).run_once()
        text = desk.metrics.render().decode()
        assert 'parley_paused{kind="account"} 1.0' in text
        assert 'parley_paused{kind="agent"} 0.0' in text


@pytest.mark.rule("EN-49")
async def test_a_run_is_unclaimable_where_no_living_worker_knows_its_agent(database_url: str) -> None:
    async with a_desk(database_url, an_agent("echo"), an_agent("other")) as desk:
        await desk.admit("echo", an_event())
        await desk.admit("other", an_event())
        sampler = Sampler(desk.database, desk.metrics, {})
        found = []
        for agents in (None, ["echo"], ["echo", "other"], []):
            await desk.database.execute("update worker_sessions set agents = $1", agents)
            await sampler.run_once()
            found.append(desk.metrics.unclaimable_runs._value.get())

        assert found == [0, 1, 0, 2]
        assert await is_agent_known(desk.database, "echo") is None
        await desk.database.execute("update worker_sessions set agents = '{other}'")
        assert await is_agent_known(desk.database, "echo") is False
