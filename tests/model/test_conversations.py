"""The machine runs: the product agrees with the rules, and each planted fault is found."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.laboratory import Laboratory
from tests.model.machine import ConversationMemory
from tests.support.postgres_fixture import PostgresForTests

QUICK = settings(
    max_examples=int(os.environ.get("MAXEX", "60")),
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def laboratory(postgres: PostgresForTests, migrated_template: str) -> Iterator[Laboratory]:
    """One database for every example: the machine's questions are of order, not of durability."""
    url = postgres.create("model", migrated_template)
    laboratory = Laboratory(url)
    ConversationMemory.laboratory = laboratory
    yield laboratory
    laboratory.close()
    postgres.drop("model")


@pytest.mark.timeout(280)
def test_the_product_does_what_the_rules_of_conversation_memory_say(laboratory: Laboratory) -> None:
    run_state_machine_as_test(ConversationMemory, settings=QUICK)
