"""Deliveries, runs, items, ids and dead-letter keys."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dead_letter import RecordPosition
from schemas.delivery import DeliveryCommand, ReplyKey
from schemas.errors import Rejected
from schemas.run import TERMINAL, RunStatus, Uuid7Source, new_uuid7, uuid7


def test_a_command_survives_encoding_and_is_keyed_by_its_first_address() -> None:
    command = DeliveryCommand(address_ids=(7, 9))

    assert DeliveryCommand.decode(command.encode()) == command
    assert command.record_key == b"7"


@given(
    st.binary() | st.sampled_from([b"[]", b'{"version":2}', b'{"version":1,"address_ids":[]}', b"x" * 9000])
)
def test_no_bytes_make_a_command_raise_anything_but_a_refusal(value: bytes) -> None:
    with pytest.raises(Rejected):
        DeliveryCommand.decode(value)


def test_a_reply_key_names_run_step_and_call_and_the_chunk_of_a_split_reply() -> None:
    assert str(ReplyKey(UUID(int=7), 1, 2)) == f"{UUID(int=7)}:1:2"
    assert str(ReplyKey(UUID(int=7), 1, 2, 0)) == f"{UUID(int=7)}:1:2:0"


def test_a_run_is_over_in_five_ways() -> None:
    assert {status for status in RunStatus if status.is_terminal} == TERMINAL
    assert len(TERMINAL) == 5


def test_a_uuid7_is_laid_out_as_rfc_9562_says() -> None:
    example = uuid7(0x017F22E279B0, 0xCC3, bytes.fromhex("98c4dc0c0c07398f"))

    assert str(example) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    assert (example.version, example.variant) == (7, "specified in RFC 4122")


@given(st.lists(st.integers(0, 3), min_size=2, max_size=20))
def test_ids_only_grow_whatever_the_clock_does(clock: list[int]) -> None:
    source = Uuid7Source()

    ids = [source.next(now) for now in clock for _ in range(3)]

    assert ids == sorted(set(ids))


def test_a_millisecond_with_more_ids_than_its_counter_borrows_from_the_next() -> None:
    source = Uuid7Source()

    ids = [source.next(5) for _ in range(9000)]

    assert ids == sorted(set(ids))
    assert new_uuid7() < new_uuid7()


def test_a_dead_letter_key_names_the_position() -> None:
    position = RecordPosition("channel.events", 3, 2**40)

    assert position.key() == b"channel.events:3:1099511627776"
    assert RecordPosition.parse(position.key()) == position
    assert RecordPosition.parse(b"a:b:c\xff") is None
