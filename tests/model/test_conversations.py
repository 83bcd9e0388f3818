"""The machine runs: the product agrees with the rules, and each planted fault is found.

Quick examples are the same in every run. The long ones are new each time: `PARLEY_MODEL_SEED` repeats those of a seed
that an earlier run printed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.laboratory import Laboratory
from tests.model.machine import ConversationMemory
from tests.support.postgres_fixture import PostgresForTests
from workers.memory import notes, store
from workers.operations import conversations

QUICK = settings(
    max_examples=100,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TO_FAIL = settings(QUICK, max_examples=1000, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.fixture(scope="module")
def laboratory(postgres: PostgresForTests, migrated_template: str) -> Iterator[Laboratory]:
    """One database for every example: the machine's questions are of order, not of durability."""
    laboratory = Laboratory(postgres.create("model", migrated_template))
    ConversationMemory.laboratory = laboratory
    yield laboratory
    laboratory.close()
    postgres.drop("model")


@pytest.mark.rule("CM-38", "CM-62", "CM-63")
@pytest.mark.timeout(300)
def test_the_product_does_what_the_rules_of_conversation_memory_say(laboratory: Laboratory) -> None:
    run_state_machine_as_test(ConversationMemory, settings=QUICK)


@pytest.mark.long
@pytest.mark.rule("CM-21", "CM-74", "CM-76")
@pytest.mark.timeout(3600)
def test_the_product_does_what_the_rules_say_in_many_more_orders(laboratory: Laboratory) -> None:
    chosen = int(os.environ.get("PARLEY_MODEL_SEED") or random.SystemRandom().randrange(2**32))
    print(f"PARLEY_MODEL_SEED={chosen}")
    many = settings(QUICK, max_examples=500, stateful_step_count=80, derandomize=False)
    run_state_machine_as_test(seed(chosen)(ConversationMemory), settings=many)


def recall_what_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = store._READ_HISTORY
    careless = statement.replace("i.status in ('accepted', 'sent') and", "i.status <> 'unknown' and")
    assert careless != statement
    monkeypatch.setattr(store, "_READ_HISTORY", careless)


def edit_notes_under_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = notes._LOCK_LANE.replace("and epoch = $3", "and epoch >= $3")
    assert careless != notes._LOCK_LANE
    monkeypatch.setattr(notes, "_LOCK_LANE", careless)


def reset_into_the_same_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "ADVANCE_GENERATION", "select generation from lanes where id = $1")


def delete_without_the_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "DELETE_NOTE_OPERATIONS", "select $1::bigint")


@pytest.mark.rule("CM-34", "CM-62", "CM-74")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "finding"),
    [
        (recall_what_is_not_sent, "the recalled history"),
        (edit_notes_under_any_epoch, "was accepted|note operations of|live notes of"),
        (reset_into_the_same_generation, "the new generation|generation of"),
        (delete_without_the_receipts, "note operations of"),
    ],
)
def test_the_machine_finds_a_planted_fault(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, plant: object, finding: str
) -> None:
    assert callable(plant)
    plant(monkeypatch)

    with pytest.raises(AssertionError, match=finding):
        run_state_machine_as_test(ConversationMemory, settings=TO_FAIL)
