"""Deliveries, runs, items, ids and dead-letter keys."""

from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dead_letter import RecordPosition
from schemas.delivery import LEGAL_MOVES, DeliveryCommand, DeliveryState, Mover, ReplyKey, may_move
from schemas.errors import Rejected
from schemas.item import ItemKind, ItemStatus, is_recalled, reply_status
from schemas.run import TERMINAL, RunStatus, Uuid7Source, new_uuid7, uuid7

S = DeliveryState


def test_a_sent_delivery_is_never_moved_again() -> None:
    assert not any(may_move(mover, S.SENT, state) for mover, state in product(Mover, S))


def test_only_a_claim_sends_and_an_uncertain_send_is_never_sent_straight_again() -> None:
    into_sending = {(mover, old) for mover, old in product(Mover, S) if may_move(mover, old, S.SENDING)}

    assert into_sending == {(Mover.SENDER, S.PENDING), (Mover.RECONCILER, S.PENDING)}
    assert not may_move(Mover.SENDER, S.UNCERTAIN, S.PENDING)


def test_no_move_stays_where_it_is() -> None:
    assert all(old is not new for moves in LEGAL_MOVES.values() for old, new in moves)


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


@given(
    st.builds(ReplyKey, st.uuids(), *[st.integers(0, 10**9 - 1)] * 2, st.none() | st.integers(0, 10**9 - 1))
)
def test_a_reply_key_reads_back_from_its_text(key: ReplyKey) -> None:
    assert ReplyKey.parse(str(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x:1:2",
        f"{UUID(int=0)}:1",
        f"{UUID(int=0)}:01:2",
        f"{UUID(int=0)}:1:2:3:4",
        f"{UUID(int=0)}:1:2\n",
        f"{UUID(int=0)}:1:-2",
    ],
)
def test_other_text_is_no_reply_key(text: str) -> None:
    assert ReplyKey.parse(text) is None


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


@pytest.mark.rule("CM-34")
def test_a_reply_in_chunks_is_recalled_once_every_chunk_is_sent() -> None:
    assert reply_status([S.SENT, S.SENT]) is ItemStatus.SENT
    assert reply_status([S.SENT, S.SENDING]) is ItemStatus.PENDING
    assert reply_status([S.SENT, S.UNCERTAIN]) is ItemStatus.PENDING
    assert reply_status([S.SENT, S.UNKNOWN, S.PENDING]) is ItemStatus.UNKNOWN
    assert reply_status([S.FAILED, S.UNKNOWN]) is ItemStatus.FAILED
    assert {
        (kind, status) for kind, status in product(ItemKind, ItemStatus) if is_recalled(kind, status)
    } == {
        (ItemKind.INPUT, ItemStatus.ACCEPTED),
        (ItemKind.REPLY, ItemStatus.SENT),
    }


def test_a_dead_letter_key_names_the_position() -> None:
    position = RecordPosition("channel.events", 3, 2**40)

    assert position.key() == b"channel.events:3:1099511627776"
    assert RecordPosition.parse(position.key()) == position
    assert RecordPosition.parse(b"a:b:c\xff") is None
