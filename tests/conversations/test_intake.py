"""Only what a registered channel signed binds a conversation; a repeat is known again, and an orphan heals once."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from schemas import jsonio
from schemas.envelope import SealedEvent, to_headers, webhook_id
from schemas.event import Event
from schemas.signing import sign
from tests.api.desk import KEY, SECRET, Page, RecordingBroker, a_body, signed
from tests.intake.conftest import Desk, a_desk, settings  # noqa: F401  # a fixture
from tests.support.events import KEYS, a_key, a_record, an_agent, an_event, sealed
from workers.agents.agent import Subscription
from workers.api.parts import ApiParts
from workers.api.server import ApiServer
from workers.api.service import create_api
from workers.channels.keys import StaticKeys
from workers.channels.lab import LabChannel
from workers.channels.web import WebChannel
from workers.channels.webhook import WebhookChannel
from workers.kafka import KafkaSettings
from workers.kafka.record import Record
from workers.memory.access import Access, Allow, Deny
from workers.memory.limits import Conversations
from workers.operations import conversations
from workers.postgres.hints import Hints
from workers.telemetry.health import Health
from workers.telemetry.metrics import Metrics

HELPER = an_agent("helper", conversation="memory")
TABLES = ("reservations", "lanes", "conversations", "runs", "items")


async def allow(access: Access) -> Allow:
    return Allow()


@pytest.fixture
async def desk(database_url: str, settings: KafkaSettings) -> AsyncIterator[Desk]:  # noqa: F811
    """Intake of a bound helper on the channels lab, hook and web; `other` is registered and nobody listens."""
    everywhere = [Subscription(name) for name in ("lab", "hook", "web")]
    async with a_desk(
        database_url,
        settings,
        agents=[an_agent("helper", conversation="memory", subscriptions=everywhere)],
        channels=[
            LabChannel(keys=KEYS),
            LabChannel("other", keys=StaticKeys((a_key("other"),))),
            LabChannel("hook", keys=StaticKeys((KEY,))),
            LabChannel("web", keys=StaticKeys((KEY,))),
        ],
        conversations=Conversations(allow),
    ) as desk:
        yield desk


async def bound(desk: Desk) -> list[tuple[str, ...]]:
    """The identity of every conversation."""
    rows = await desk.database.fetch(
        "select memory_key, channel, account, chat, audience from conversations order by lane_id"
    )
    return [tuple(row) for row in rows]


async def nothing_was_made(desk: Desk) -> bool:
    counts = ", ".join(f"(select count(*) from {table})" for table in TABLES)
    [row] = await desk.database.fetch(f"select {counts}")
    return not any(row)


def with_value(event: Event, change: Callable[[bytes], bytes]) -> Record:
    """The record of `event`, its value changed after it was signed."""
    signed_event = sealed(event)
    return a_record(signed_event, value=change(signed_event.value))


@pytest.mark.rule("CM-19", "CM-28")
async def test_what_is_not_signed_by_the_registered_channel_binds_nothing_and_is_kept_apart(
    desk: Desk,
) -> None:
    event = an_event(account="main", chat="room")
    signed_event = sealed(event)
    forged: dict[str, Record] = {
        "another channel's key": a_record(sealed(event, a_key("other"))),
        "nobody's key": a_record(sealed(event, a_key("mallory"))),
        "no signature": a_record(
            signed_event, headers=[h for h in signed_event.headers if h[0] != "webhook-signature"]
        ),
        "another chat": with_value(event, lambda value: value.replace(b'"room"', b'"boss"')),
        "another account": with_value(event, lambda value: value.replace(b'"main"', b'"boss"')),
        "a channel that is not registered": a_record(sealed(an_event(channel="nowhere"))),
        "the engine's own channel": a_record(sealed(an_event(channel="parley:dispatch"))),
        "a name like the channel's": a_record(sealed(an_event(channel="Lab"))),
    }

    await desk.take(*forged.values())

    assert await nothing_was_made(desk)
    letters = await desk.letters()
    assert len(letters) == len(forged)
    assert {letter.reason for letter in letters} == {"unauthenticated"}
    assert desk.offsets() == sorted(record.offset for record in forged.values())


@pytest.mark.rule("CM-19", "CM-24")
async def test_fields_that_look_like_bindings_bind_nothing(desk: Desk) -> None:
    forged = {"account": "boss", "chat": "private", "audience": "direct", "memory_key": "other", "lane_id": 1}
    event = an_event(chat="mine", account="main", audience="team", payload=forged)
    fields = {
        "conversation": {"account": "boss", "chat": "private"},
        "identity": {"memory_key": "other"},
        "memory_key": "other",
        "generation": 7,
        "concurrency_key": "boss",
    }

    await desk.take(a_record(event), a_record(signed_with(an_event(chat="mine", account="main"), fields)))

    assert await bound(desk) == [
        ("memory", "lab", "main", "mine", "team"),
        ("memory", "lab", "main", "mine", "direct"),
    ]
    rows = await desk.database.fetch("select memory_key, generation, event from runs order by lane_id")
    assert [(row["memory_key"], row["generation"]) for row in rows] == [("memory", 0)] * 2
    assert jsonio.loads(rows[0]["event"])["payload"] == forged


def signed_with(event: Event, fields: dict[str, object]) -> SealedEvent:
    """The record of `event` with more fields in its value, signed by the channel itself."""
    value, now = jsonio.dumps(jsonio.loads(event.raw) | fields), int(time.time())
    signature = sign(KEYS.signing, webhook_id(event.event_id), now, value)
    return SealedEvent(event.record_key, value, to_headers(event, now, signature, None))


@pytest.mark.rule("CM-27", "CM-28")
async def test_a_denied_event_is_taken_and_creates_nothing_and_is_asked_about_again_when_it_comes_again(
    database_url: str,
    settings: KafkaSettings,  # noqa: F811
) -> None:
    members: set[str] = set()

    async def members_only(access: Access) -> Allow | Deny:
        assert access.purpose == "dispatch"
        return Allow() if access.principal.id in members else Deny("no member")

    conversations = Conversations(members_only)
    async with a_desk(database_url, settings, agents=[HELPER], conversations=conversations) as desk:
        record = a_record(an_event(chat="room"))
        await desk.take(record)
        made = not await nothing_was_made(desk)
        members.add("user-1")
        await desk.take(a_record(an_event(chat="room")))

        assert not made
        assert desk.offsets()[0] == record.offset
        assert (desk.counted("denied"), desk.counted("admitted")) == (1, 1)
        assert await desk.letters() == []
        assert len(await bound(desk)) == 1


@pytest.mark.rule("CM-25", "CM-19")
async def test_account_and_chat_fields_of_an_http_body_bind_nothing(desk: Desk, database_url: str) -> None:
    broker, hints = RecordingBroker(), Hints(database_url)
    web = WebChannel(secret=SECRET, keys=StaticKeys((KEY,)))
    hook = WebhookChannel("hook", "http://127.0.0.1:9/", StaticKeys((KEY,)))
    web.bind(desk.database, hints)
    parts = ApiParts(
        "Support", {"web": web, "hook": hook}, broker.publish, desk.database, hints, Health(), Metrics()
    )
    server = ApiServer(create_api(parts))
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    private = {"account": "boss", "chat": "private", "audience": "team", "thread": "t", "channel": "lab"}
    visitor = Page(url)
    try:
        await visitor.visit()
        said = await visitor.http.post(
            "/web/messages",
            json={"text": "hello", "principal": {"id": "boss"}} | private,
            headers={"origin": url},
        )
        chat = visitor.chat
        async with httpx.AsyncClient(base_url=url) as stranger:
            unsigned = await stranger.post("/channels/hook/webhook", content=a_body(**private))
            forged = await stranger.post(
                "/channels/hook/webhook",
                content=a_body(**private),
                headers=signed(a_body(), key=a_key("mallory")),
            )
    finally:
        await visitor.http.aclose()
        await server.stop()

    assert (said.status_code, unsigned.status_code, forged.status_code) == (202, 401, 401)
    await desk.take(*map(a_record, broker.published))
    assert await bound(desk) == [("memory", "web", "browser", chat, "direct")]
    [event] = broker.events()
    assert event.principal.id != "boss"


@pytest.mark.rule("CM-21")
@pytest.mark.parametrize("act", ["reset", "delete"])
async def test_a_duplicate_stays_one_after_a_reset_or_delete(desk: Desk, act: str) -> None:
    done, queued = an_event(chat="room"), an_event(chat="room")
    await desk.take(a_record(done))
    await desk.database.execute(
        "with ended as (update runs set status = 'succeeded', finished_at = now() returning id)"
        " update reservations r set outcome = 'succeeded' from ended where r.run_id = ended.id"
    )
    await desk.take(a_record(queued))
    [lane] = await desk.database.fetch("select id from lanes")
    renew = conversations.reset if act == "reset" else conversations.delete
    await renew(desk.database, lane["id"], "operator")

    await desk.take(a_record(done), a_record(queued))
    new = an_event(chat="room")
    await desk.take(a_record(new))

    rows = await desk.database.fetch("select event_id, generation, status from runs order by position")
    assert [tuple(row) for row in rows] == [
        (done.event_id, 0, "succeeded"),
        (queued.event_id, 0, "cancelled"),
        (new.event_id, 1, "queued"),
    ]
    assert desk.counted("duplicate") == 2
    assert await desk.letters() == []


async def lose_runs(desk: Desk) -> None:
    """Reservations were restored from a later backup than runs."""
    await desk.database.execute("delete from ready")
    await desk.database.execute("delete from runs")


@pytest.mark.rule("CM-22")
async def test_an_orphan_of_the_first_generation_heals_once_into_its_conversation(desk: Desk) -> None:
    event = an_event(chat="room")
    await desk.take(a_record(event))
    await lose_runs(desk)

    await desk.take(a_record(event), a_record(event))
    await desk.take(a_record(event))

    [run] = await desk.database.fetch(
        "select r.event_id, r.memory_key, c.chat from runs r join conversations c using (lane_id)"
    )
    assert tuple(run) == (event.event_id, "memory", "room")
    assert (desk.counted("healed"), desk.counted("duplicate")) == (1, 2)


@pytest.mark.rule("CM-23", "CM-21")
@pytest.mark.parametrize("act", ["reset", "delete"])
@pytest.mark.parametrize("reserved", ["before", "after"])
async def test_an_orphan_of_a_conversation_that_was_ever_reset_does_not_heal(
    desk: Desk, act: str, reserved: str
) -> None:
    event = an_event(chat="room")
    await desk.take(a_record(event if reserved == "before" else an_event(chat="room")))
    [lane] = await desk.database.fetch("select id from lanes")
    renew = conversations.reset if act == "reset" else conversations.delete
    if reserved == "after":
        await renew(desk.database, lane["id"], "operator")
        await desk.take(a_record(event))
    await lose_runs(desk)
    await desk.database.execute("update reservations set outcome = null")
    if reserved == "before":
        await renew(desk.database, lane["id"], "operator")

    await desk.take(a_record(event))
    await desk.take(a_record(event))

    assert await desk.runs() == []
    assert {letter.reason for letter in await desk.letters()} == {"unhealable"}
    assert desk.counted("unhealable") == 2
