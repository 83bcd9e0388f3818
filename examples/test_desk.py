"""How an author tests an agent: real engine, no services to install, and a worker that dies where the test says."""

import pytest

from examples.desk import app, bookings
from workers.testing import TestApp


@pytest.fixture(autouse=True)
def no_bookings_yet() -> None:
    bookings.requests.clear()


async def test_a_table_is_booked_and_confirmed() -> None:
    async with TestApp(app) as chat:
        await chat.send("A table for 4, please")

        (answer,) = await chat.replies()

        assert answer.startswith("Booked a table for 4, number ")


async def test_a_crash_after_the_booking_books_no_second_table() -> None:
    async with TestApp(app) as chat:
        chat.crash_after_step(1)
        await chat.send("A table for 2, please")
        await chat.restart()

        await chat.settled()

        assert bookings.requests == ["table for 2"]
        assert len(await chat.replies()) == 1


async def test_the_desk_knows_its_guests_again() -> None:
    async with TestApp(app) as chat:
        await chat.send("Hello", chat="ada")
        await chat.replies(chat="ada")
        await chat.send("Hello again", chat="ada")

        assert (await chat.replies(chat="ada", at_least=2))[1].endswith("You wrote 1 times before.")
