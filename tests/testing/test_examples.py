"""The examples' own tests pass as an author would run them."""

from examples.test_desk import (  # noqa: F401  # collected here: `examples` is no folder of this suite
    no_bookings_yet,
    test_a_crash_after_the_booking_books_no_second_table,
    test_a_table_is_booked_and_confirmed,
    test_the_desk_knows_its_guests_again,
)
