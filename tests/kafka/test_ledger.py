"""Offsets are released contiguous and in order, whatever the order of acknowledgement."""

from hypothesis import given
from hypothesis import strategies as st

from workers.kafka.ledger import Ledger


def ledger_of(offsets: range, generation: int = 1) -> Ledger[int]:
    ledger: Ledger[int] = Ledger()
    for offset in offsets:
        ledger.take(0, generation, offset, offset, 10)
    return ledger


@given(st.permutations(range(5, 15)))
def test_any_order_of_acks_releases_every_offset_once_and_in_order(order: list[int]) -> None:
    ledger = ledger_of(range(5, 15))
    released: list[int] = []
    for done, offset in enumerate(order, start=1):
        released += ledger.ack(0, 1, offset)
        acked = set(order[:done])
        assert released == [n for n in range(5, 15) if all(m in acked for m in range(5, n + 1))]
        assert ledger.unacked_bytes == 10 * (10 - done)
    assert released == list(range(5, 15))
    assert ledger.records == 0


def test_a_repeated_ack_and_one_of_an_unknown_record_release_nothing() -> None:
    ledger = ledger_of(range(3))
    assert ledger.ack(0, 1, 0) == [0]
    assert ledger.ack(0, 1, 0) == []
    assert ledger.ack(0, 1, 9) == []
    assert ledger.ack(7, 1, 0) == []


def test_a_new_generation_starts_anew_and_ignores_acks_of_the_old_one() -> None:
    ledger = ledger_of(range(3))
    ledger.take(0, 2, 0, 0, 10)
    assert ledger.ack(0, 1, 0) == []
    assert ledger.records == 1
    assert ledger.oldest(0) == 0
    assert ledger.ack(0, 2, 0) == [0]


def test_a_revoked_partition_leaves_nothing_behind() -> None:
    ledger = ledger_of(range(3))
    ledger.ack(0, 1, 2)
    ledger.clear()
    assert (ledger.records, ledger.unacked_bytes, ledger.oldest(0)) == (0, 0, None)


def test_gaps_in_the_log_do_not_stop_the_release() -> None:
    ledger: Ledger[int] = Ledger()
    for offset in (3, 90, 91):
        ledger.take(0, 1, offset, offset, 1)
    assert ledger.ack(0, 1, 90) == []
    assert ledger.ack(0, 1, 3) == [3, 90]


def test_a_record_that_comes_again_begins_its_partition_anew() -> None:
    ledger = ledger_of(range(3, 6))
    ledger.ack(0, 1, 4)
    ledger.take(0, 1, 3, 3, 10)
    assert (ledger.records, ledger.unacked_bytes, ledger.oldest(0)) == (1, 10, 3)
    assert ledger.ack(0, 1, 3) == [3]
    assert ledger.ack(0, 1, 5) == []
