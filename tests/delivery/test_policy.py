"""The decisions of delivery are total, bounded, and never send again what may have arrived without leave."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.delivery import DeliveryState
from workers.channels.port import (
    Absent,
    Capability,
    Found,
    LookUp,
    NotSent,
    Outcome,
    Refused,
    Sent,
    Uncertain,
    Unsure,
)
from workers.delivery.policy import (
    CANCELLED,
    SESSION_ENDED,
    AskChannel,
    Decision,
    Doubt,
    MarkSent,
    MarkUnknown,
    ResendSameKey,
    Retries,
    Wait,
    decide_receipt,
    decide_uncertain,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RETRIES = Retries()
SECONDS = st.integers(0, 200_000).map(lambda seconds: timedelta(seconds=seconds))

doubts = st.builds(
    Doubt,
    capability=st.sampled_from(Capability),
    window=st.just(timedelta(minutes=5)),
    settling=st.just(timedelta(seconds=10)),
    transport_timeout=st.just(timedelta(seconds=5)),
    lease_for=st.just(timedelta(seconds=15)),
    first_sent_at=SECONDS.map(lambda ago: NOW - ago),
    claimed_at=st.integers(0, 100).map(lambda ago: NOW - timedelta(seconds=ago)),
    failures=st.integers(0, 12),
    reason=st.sampled_from([None, "HTTP 503", CANCELLED, SESSION_ENDED]),
    resend_unknown=st.booleans(),
)
look_ups: st.SearchStrategy[LookUp | None] = st.sampled_from([None, Found("p"), Absent(), Unsure("timeout")])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Sent("p")),
    st.just(Refused("HTTP 400")),
    st.sampled_from(["timeout", CANCELLED, SESSION_ENDED]).map(Uncertain),
    st.builds(
        NotSent,
        reason=st.sampled_from(["HTTP 429", CANCELLED, SESSION_ENDED]),
        retry_after=st.none() | SECONDS,
        scope=st.sampled_from(["address", "account", "channel"]),
        rate_limited=st.booleans(),
    ),
)


@pytest.mark.rule("EN-34")
@given(doubt=doubts, lookup=look_ups)
def test_the_reconciler_always_knows_what_to_do(doubt: Doubt, lookup: LookUp | None) -> None:
    decision = decide_uncertain(doubt, lookup, NOW, RETRIES)

    assert isinstance(decision, get_args(Decision))
    if lookup is not None and doubt.capability in (Capability.LOOK_UP_DEFINITE, Capability.LOOK_UP_POSITIVE):
        assert not isinstance(decision, AskChannel)
    if isinstance(decision, Wait):
        assert decision.until > NOW


@pytest.mark.rule("EN-34")
@given(doubt=doubts, lookup=look_ups)
def test_nothing_goes_again_unless_the_capability_allows_it(doubt: Doubt, lookup: LookUp | None) -> None:
    decision = decide_uncertain(doubt, lookup, NOW, RETRIES)

    if not isinstance(decision, ResendSameKey):
        return
    assert not doubt.cancelled
    assert doubt.failures < RETRIES.max_failures
    match doubt.capability:
        case Capability.IDEMPOTENT_WINDOW:
            assert doubt.first_sent_at + timedelta(minutes=4, seconds=30) > NOW
        case Capability.LOOK_UP_DEFINITE:
            assert isinstance(lookup, Absent)
            assert decision.certainly_absent
            assert doubt.claimed_at + timedelta(seconds=30) <= NOW
        case Capability.LOOK_UP_POSITIVE:
            raise AssertionError("a positive look-up proves nothing by its absence")
        case Capability.NONE:
            assert doubt.resend_unknown
            assert decision.possible_duplicate
        case Capability.IDEMPOTENT:
            pass


@pytest.mark.rule("EN-34")
@given(doubt=doubts)
def test_what_was_found_is_sent_whatever_else_is_known(doubt: Doubt) -> None:
    assert decide_uncertain(doubt, Found("p"), NOW, RETRIES) == MarkSent("p")


@pytest.mark.rule("EN-34")
@given(doubt=doubts)
def test_a_failed_look_up_never_reads_as_not_there(doubt: Doubt) -> None:
    if doubt.capability in (Capability.LOOK_UP_DEFINITE, Capability.LOOK_UP_POSITIVE):
        decision = decide_uncertain(doubt, Unsure("timeout"), NOW, RETRIES)

        aged = doubt.first_sent_at <= NOW - RETRIES.max_age
        assert isinstance(decision, MarkUnknown if aged else Wait)


@pytest.mark.rule("EN-31", "EN-33")
@given(
    outcome=outcomes,
    failures=st.integers(0, 20),
    age=SECONDS,
    suspect=st.booleans(),
    jitter=st.floats(0, 0.999),
)
def test_a_receipt_is_bounded_and_honest(
    outcome: Outcome, failures: int, age: timedelta, suspect: bool, jitter: float
) -> None:
    verdict = decide_receipt(
        outcome, failures=failures, age=age, suspect=suspect, jitter=jitter, retries=RETRIES
    )

    assert timedelta(0) <= verdict.wait <= RETRIES.longest_retry_after
    assert verdict.reason not in (CANCELLED, SESSION_ENDED)
    if suspect:
        assert verdict.state is not DeliveryState.FAILED
    if verdict.state is DeliveryState.PENDING:
        assert isinstance(outcome, NotSent)
        assert age < RETRIES.max_age
    if isinstance(outcome, NotSent) and outcome.rate_limited:
        assert verdict.failures == 0
    if verdict.hold is not None:
        assert verdict.hold.wait <= RETRIES.longest_retry_after


def test_the_wait_doubles_up_to_five_minutes_and_jitter_only_shortens_it() -> None:
    waits = [RETRIES.backoff(failures, 0.0).total_seconds() for failures in range(1, 12)]

    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert RETRIES.backoff(3, 0.99) > timedelta(seconds=2)
