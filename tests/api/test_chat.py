"""A visitor's chat: what is typed becomes an event, what is answered comes back, to this visitor alone."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx
import pytest

from schemas import jsonio
from schemas.envelope import SealedEvent
from tests.api.conftest import Served
from tests.api.desk import SECRET, Page
from workers.api.messages import is_own_origin
from workers.api.session import LIFETIME, Visitor, read_cookie, write_cookie
from workers.channels.keys import StaticKeys
from workers.channels.port import NotSent, Outgoing, Refused, Sent
from workers.channels.web import ACCOUNT, WeakSecret, WebChannel
from workers.kafka.errors import BrokerAway

WITHIN = timedelta(seconds=5)


def a_reply(chat: str, text: str = "hello", key: str = "run:1:0", account: str = ACCOUNT) -> Outgoing:
    return Outgoing(uuid4(), key, "web", account, chat, text, 1, datetime.now(UTC))


async def send(served: Served, *replies: Outgoing) -> list[object]:
    assert served.web is not None
    return [await served.web.send(reply, WITHIN) for reply in replies]


async def count_rows(served: Served) -> int:
    assert served.database is not None
    row = await served.database.fetchrow("select count(*) from mailbox")
    assert row is not None
    return int(row["count"])


async def test_what_a_visitor_types_becomes_a_signed_event_of_the_cookies_chat(
    chat: Served, page: Page
) -> None:
    answer = await page.say("hello", "m-1")

    assert (answer.status_code, answer.json()) == (202, {"message": "m-1"})
    [event] = chat.broker.events()
    assert (event.channel, event.account, event.chat, event.audience) == ("web", ACCOUNT, page.chat, "direct")
    assert (event.event_id, event.text, event.address) == (f"{page.chat}:m-1", "hello", page.chat)
    assert event.principal.id == page.http.cookies["parley_web"].split(".")[2]


async def test_the_same_client_id_is_the_same_event_and_one_line_of_the_chat(
    chat: Served, page: Page
) -> None:
    await page.say("hello", "m-1")
    await page.say("hello", "m-1")

    first, second = chat.broker.events()
    assert (first.event_id, first.payload_hash()) == (second.event_id, second.payload_hash())
    assert await count_rows(chat) == 1


async def test_a_message_is_accepted_only_after_the_brokers_acknowledgement(chat: Served, page: Page) -> None:
    chat.broker.failure = lambda: BrokerAway("broker:9092", "gone")

    answer = await page.say("hello", "m-1")

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert await count_rows(chat) == 0


async def test_a_message_is_accepted_with_the_database_away(chat: Served, page: Page) -> None:
    assert chat.database is not None
    await chat.database.execute("alter table mailbox rename to elsewhere")

    answer = await page.say("hello")

    assert answer.status_code == 202
    assert len(chat.broker.published) == 1


async def test_a_reply_streams_to_an_open_page_and_a_reload_shows_both_sides(
    chat: Served, page: Page
) -> None:
    await page.say("ping", "m-1")
    waiting = asyncio.create_task(page.letters(2))

    assert await send(chat, a_reply(page.chat, "pong", "run:1:0")) == [Sent()]

    live, reloaded = await waiting, await page.letters(2)
    assert live == reloaded
    assert [(each["direction"], each["text"]) for each in live] == [("in", "ping"), ("out", "pong")]
    assert live[0]["message"] == "m-1"


async def test_a_reply_that_is_quicker_than_the_question_is_kept_still_follows_it(
    chat: Served, page: Page
) -> None:
    async def answer_at_once(sealed: SealedEvent) -> None:
        await send(chat, a_reply(page.chat, "pong"))

    chat.broker.then = answer_at_once
    await page.say("ping")

    first, second = await page.letters(2)
    assert (first["text"], second["text"]) == ("pong", "ping")
    assert second["at"] < first["at"]


async def test_a_reply_under_one_key_is_in_the_mailbox_once(chat: Served, page: Page) -> None:
    outcomes = await send(chat, a_reply(page.chat, "once"), a_reply(page.chat, "once"))

    assert outcomes == [Sent(), Sent()]
    assert await count_rows(chat) == 1


async def test_a_cursor_misses_nothing_and_repeats_nothing(chat: Served, page: Page) -> None:
    replies = [a_reply(page.chat, f"n{number}", f"run:{number}:0") for number in range(130)]
    await asyncio.gather(*(send(chat, reply) for reply in replies))

    newest = await page.letters(100)
    every = await page.letters(130, after="?after=0")
    rest = await page.letters(29, after=f"?after={every[100]['id']}")

    ids = [letter["id"] for letter in every]
    assert ids == sorted(set(ids))
    assert {letter["text"] for letter in every} == {f"n{number}" for number in range(130)}
    assert newest == every[30:]
    assert rest == every[101:]


async def test_a_letter_becomes_visible_only_after_all_earlier_ids_of_its_chat(chat: Served) -> None:
    assert chat.database is not None
    assert chat.web is not None
    mailbox, one = chat.web.mailbox, "a" * 32
    async with chat.database.transaction() as slow:
        await mailbox.add(slow, one, "first", "out", "first")
        later = asyncio.create_task(send(chat, a_reply(one, "second", "second")))
        other = await send(chat, a_reply("b" * 32, "other chat", "third"))
        assert other == [Sent()]
        assert not later.done()
        async with chat.database.acquire() as reader:
            assert await mailbox.read(reader, [(one, 0)], 10) == [[]]

    assert await later == [Sent()]
    async with chat.database.acquire() as reader:
        [letters] = await mailbox.read(reader, [(one, 0)], 10)
    assert [letter.key for letter in letters] == ["first", "second"]


async def test_another_visitors_mailbox_is_as_unknown_as_one_that_never_was(chat: Served, page: Page) -> None:
    stranger = Page(chat.url)
    await stranger.visit()
    await send(chat, a_reply(page.chat, "private"))

    foreign = await stranger.http.get(f"/web/mailboxes/{page.chat}/events")
    unknown = await stranger.http.get(f"/web/mailboxes/{'0' * 32}/events")
    own = await page.letters(1, path=f"/web/mailboxes/{page.chat}/events")
    await stranger.http.aclose()

    assert (foreign.status_code, foreign.content) == (404, unknown.content)
    assert own[0]["text"] == "private"


@pytest.mark.parametrize(
    "change", ["nothing", "chat", "principal", "signature", "cut", "junk", "other channel"]
)
async def test_a_forged_cookie_is_no_session(chat: Served, page: Page, change: str) -> None:
    good = page.http.cookies["parley_web"]
    version, mailbox, principal, issued, signature = good.split(".")
    now = datetime.now(UTC)
    cookie = {
        "nothing": "",
        "chat": ".".join((version, "0" * 32, principal, issued, signature)),
        "principal": ".".join((version, mailbox, "0" * 32, issued, signature)),
        "signature": good[:-1] + ("0" if good[-1] != "0" else "1"),
        "cut": good[:-2],
        "junk": "%ff;\"'" * 100,
        "other channel": write_cookie(Visitor(mailbox, principal), "other", (SECRET.encode(),), now),
    }[change]
    headers = {"cookie": f"parley_web={cookie}", "origin": chat.url, "content-type": "application/json"}

    async with httpx.AsyncClient(base_url=chat.url) as http:
        posted = await http.post("/web/messages", content=b'{"text":"x"}', headers=headers)
        read = await http.get("/web/events", headers=headers)

    assert [(posted.status_code, posted.json()["code"])] == [(401, "no_session")]
    assert [(read.status_code, read.json()["code"])] == [(401, "no_session")]
    assert not chat.broker.published


async def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(chat: Served) -> None:
    answer = await chat.http.get("/")

    cookie = answer.headers["set-cookie"]
    assert re.search(r"; HttpOnly;.*Path=/; SameSite=lax$", cookie)
    assert "Secure" not in cookie
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "<title>Support</title>" in answer.text


async def test_a_cookie_ends_and_a_rotated_secret_still_proves_it() -> None:
    now, visitor = datetime.now(UTC), Visitor.new()
    old, new = b"old old old old old", b"new new new new new"
    cookie = write_cookie(visitor, "web", (old,), now)

    assert read_cookie(cookie, "web", (new, old), now) == visitor
    assert read_cookie(cookie, "web", (new,), now) is None
    assert read_cookie(cookie, "web", (old,), now + LIFETIME + timedelta(seconds=1)) is None
    with pytest.raises(WeakSecret):
        WebChannel(secret="short", keys=StaticKeys(()))


async def test_a_message_from_another_site_is_refused(chat: Served, page: Page) -> None:
    evil = await page.say("x", origin="https://evil.example")
    none = await page.http.post("/web/messages", json={"text": "x"})
    form = await page.http.post("/web/messages", data={"text": "x"}, headers={"origin": chat.url})

    assert {evil.status_code, none.status_code} == {403}
    assert evil.json()["code"] == "forbidden_origin"
    assert form.status_code == 415
    assert not chat.broker.published


def test_an_origin_is_ours_by_its_host_or_by_name() -> None:
    allowed = frozenset({"https://chat.example.org"})

    assert is_own_origin("http://Host:8080", "host:8080", frozenset())
    assert is_own_origin("https://chat.example.org", "inside:8080", allowed)
    for origin in ("null", "http://host", "ftp://host:8080", "http://[", "", "http://host:8080@evil"):
        assert not is_own_origin(origin, "host:8080", allowed)
    assert not is_own_origin("http://", "", frozenset())
    assert not is_own_origin(None, "host:8080", allowed)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"text":""}', 400),
        (b'{"text":" \\n "}', 400),
        (b'{"text":7}', 400),
        (b'{"text":"x","client_id":""}', 400),
        (b'{"text":"x","client_id":"a b"}', 400),
        (b'{"text":"x","client_id":7}', 400),
        (jsonio.dumps({"text": "x" * 32769}), 413),
        (jsonio.dumps({"text": "x" * 300_000}), 413),
    ],
)
async def test_a_body_that_is_no_message_is_refused(
    chat: Served, page: Page, body: bytes, status: int
) -> None:
    headers = {"origin": chat.url, "content-type": "application/json"}

    answer = await page.http.post("/web/messages", content=body, headers=headers)

    assert answer.status_code == status
    assert not chat.broker.published


async def test_text_that_no_store_can_hold_is_cleaned(chat: Served, page: Page) -> None:
    headers = {"origin": chat.url, "content-type": "application/json"}
    body = b'{"text":"a\\u0000b\\ud800c"}'

    answer = await page.http.post("/web/messages", content=body, headers=headers)

    assert answer.status_code == 202
    assert chat.broker.events()[0].text == "a\ufffdb\ufffdc"
    assert (await page.letters(1))[0]["text"] == "a\ufffdb\ufffdc"


async def test_a_visitor_in_a_hurry_is_told_to_wait_and_others_are_not(chat: Served, page: Page) -> None:
    other = Page(chat.url)
    await other.visit()

    statuses = [(await page.say("x")).status_code for _ in range(25)]

    assert statuses[:20] == [202] * 20
    assert 429 in statuses[20:]
    assert (await other.say("x")).status_code == 202
    await other.http.aclose()


@pytest.mark.parametrize("after", ["x", "-1", "1" * 30, "٣"])
async def test_a_cursor_that_is_no_number_is_refused(page: Page, after: str) -> None:
    answer = await page.http.get("/web/events", params={"after": after})

    assert answer.status_code == 400


async def test_a_reply_to_no_chat_is_refused_and_an_unbound_channel_sends_nothing(chat: Served) -> None:
    refused = await send(chat, a_reply("nobody"), a_reply("a" * 32, account="other"))
    unbound = await WebChannel(secret=SECRET, keys=None).send(a_reply("a" * 32), WITHIN)

    assert {type(outcome) for outcome in refused} == {Refused}
    assert isinstance(unbound, NotSent)
    assert await count_rows(chat) == 0


async def test_open_pages_end_when_the_server_stops(chat: Served, page: Page) -> None:
    stream = asyncio.create_task(page.letters(1))
    await send(chat, a_reply("c" * 32))
    await asyncio.wait([stream], timeout=0.3)

    async with asyncio.timeout(3):
        await chat.server.stop()
        with pytest.raises((AssertionError, httpx.HTTPError)):
            await stream
