"""The chat page in a real browser: what a visitor sees."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from schemas.envelope import SealedEvent
from tests.api.conftest import Served
from tests.api.test_chat import a_reply
from tests.support.browser import Tab, open_tab
from tests.support.waiting import eventually
from workers.api.server import ApiServer
from workers.api.service import create_api
from workers.kafka.errors import BrokerAway

pytestmark = pytest.mark.browser

TEXTS = "[...document.querySelectorAll('.bubble:not(.pending)')].map(b => b.lastChild.textContent)"
CONNECTED = "document.getElementById('connection')?.textContent === 'Connected'"


@pytest.fixture
async def tab(chat: Served, tmp_path: Path) -> AsyncIterator[Tab]:
    async with open_tab(chat.url, tmp_path / "profile") as opened:
        await opened.until(CONNECTED)
        yield opened


async def answer(served: Served, *texts: str) -> None:
    """Put replies into the mailbox of the last visitor who wrote."""
    await eventually("the message is published", lambda: served.broker.published)
    mailbox = served.broker.events()[-1].chat
    assert served.web is not None
    for number, text in enumerate(texts):
        reply = a_reply(mailbox, text, f"{len(served.broker.published)}:{number}")
        await served.web.send(reply, timedelta(seconds=5))


async def test_a_visitor_writes_and_sees_the_reply_come(chat: Served, tab: Tab) -> None:
    question = "Can you remember that my train leaves at 9:40?"
    await tab.type(question)
    await tab.until("document.querySelector('.pending') !== null")
    assert await tab.ask(TEXTS) == [question]

    await answer(chat, "Noted: your train leaves at 9:40.")
    await tab.until(f"{TEXTS}.length === 2")
    assert await tab.ask("document.querySelector('.pending') === null")
    await tab.type("And when should I leave home?\nIt is a 25 minute walk to the station.")
    await eventually("two messages are published", lambda: len(chat.broker.published) == 2)
    await answer(chat, "At 9:05.\n25 minutes to walk, and 10 to spare.")
    await tab.until(f"{TEXTS}.length === 4")
    await tab.type("Thank you!")
    await tab.until("document.querySelector('.pending') !== null")
    picture = await tab.screenshot()

    assert picture.startswith(b"\x89PNG")
    if keep := os.environ.get("KEEP_SCREENSHOT"):
        await asyncio.to_thread(Path(keep).write_bytes, picture)
    shown = await tab.ask(TEXTS)
    await tab.reload()
    await tab.until(f"{CONNECTED} && {TEXTS}.length === 5")
    assert await tab.ask(TEXTS) == shown


async def test_a_message_that_was_not_accepted_says_so_and_can_be_sent_again(chat: Served, tab: Tab) -> None:
    chat.broker.failure = lambda: BrokerAway("broker:9092", "gone")
    await tab.type("hello")
    await tab.until("document.querySelector('.in.failed') !== null")

    chat.broker.failure = None
    await tab.ask("document.querySelector('.note button').click()")
    await tab.until(
        "document.querySelector('.in.failed') === null && document.querySelector('.note') === null"
    )

    assert [event.text for event in chat.broker.events()] == ["hello"]
    assert await tab.ask(TEXTS) == ["hello"]


async def test_markup_in_a_reply_stays_text(chat: Served, tab: Tab) -> None:
    markup = "<img src=x onerror=\"document.title='taken'\"> & <b>bold</b>"
    await tab.type("show me")

    await answer(chat, markup)

    await tab.until(f"{TEXTS}.length === 2")
    assert await tab.ask(f"{TEXTS}[1]") == markup
    assert await tab.ask("document.title") == "Support"


async def test_a_page_finds_its_server_again_and_what_it_missed(chat: Served, tab: Tab) -> None:
    await tab.type("hello")
    await eventually("the message is published", lambda: chat.broker.published)
    port = int(chat.url.rsplit(":", 1)[1])

    await chat.server.stop()
    await tab.until("document.getElementById('connection').textContent === 'Reconnecting'")
    await answer(chat, "said while you were away")
    restarted = ApiServer(create_api(chat.parts))
    assert await restarted.start("127.0.0.1", port) == port

    await tab.until(f"{CONNECTED} && {TEXTS}.length === 2")
    assert await tab.ask(TEXTS) == ["hello", "said while you were away"]
    await restarted.stop()


async def test_a_reload_shows_a_quick_reply_below_its_question(chat: Served, tab: Tab) -> None:
    async def answer_at_once(_sealed: SealedEvent) -> None:
        await answer(chat, "pong")

    chat.broker.then = answer_at_once
    await tab.type("ping")
    await tab.until(f"{TEXTS}.length === 2")
    assert await tab.ask(TEXTS) == ["ping", "pong"]

    await tab.reload()

    await tab.until(f"{CONNECTED} && {TEXTS}.length === 2")
    assert await tab.ask(TEXTS) == ["ping", "pong"]


async def test_the_page_has_names_for_what_it_shows(tab: Tab) -> None:
    named = await tab.ask("document.getElementById('text').labels[0].textContent")
    live = await tab.ask("document.getElementById('log').getAttribute('aria-live')")
    focus = await tab.ask("document.activeElement.id")
    loaded = await tab.ask("performance.getEntriesByType('resource').map(e => new URL(e.name).host)")

    assert (named, live, focus) == ("Your message", "polite", "text")
    assert set(loaded) == {await tab.ask("location.host")}
