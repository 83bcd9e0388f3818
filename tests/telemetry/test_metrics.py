"""Metric names are listed once, labels are closed, and every set stands alone."""

import re

import pytest

from workers.telemetry import Metrics

IDS = ("id", "key", "user", "chat", "address", "event_id", "run", "conversation", "url", "account")


@pytest.mark.rule("EN-46")
def test_no_label_holds_an_id_and_values_beyond_the_bound_count_as_other() -> None:
    metrics = Metrics(most_values=3)
    assert not [d for d in metrics.describe() if set(d.labels) & set(IDS)]

    for number in range(500):
        metrics.turns.labels(f"agent-{number}", "succeeded").inc()
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("parley_turns_total")]
    assert len(lines) == 4
    assert 'parley_turns_total{agent="other",outcome="succeeded"} 497.0' in lines


@pytest.mark.rule("EN-46")
def test_the_list_is_what_is_scraped() -> None:
    metrics = Metrics()
    described = metrics.describe()
    scraped = set(re.findall(r"# TYPE (\w+) (?:counter|gauge|histogram)", metrics.render().decode()))
    scraped = {name for name in scraped if not name.endswith("_created")}
    assert scraped == {d.name for d in described}
    assert len({d.name for d in described}) == len(described)
    assert all(d.name.startswith("parley_") and d.meaning for d in described)
    assert {d.kind for d in described} == {"counter", "gauge", "histogram"}


def test_gauges_read_from_the_database_are_to_be_aggregated_by_max() -> None:
    from_the_database = {
        "parley_queue_depth",
        "parley_queue_oldest_seconds",
        "parley_unclaimable_runs",
        "parley_delivery_states",
        "parley_oldest_pending_seconds",
        "parley_paused",
        "parley_sweep_age_seconds",
    }
    assert {d.name for d in Metrics().describe() if d.aggregate == "max"} == from_the_database


def test_two_sets_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.events.labels("slack", "admitted").inc()
    one.lease_losses.inc(2)
    assert b'parley_events_total{channel="slack",outcome="admitted"} 1.0' in one.render()
    assert b"parley_events_total{" not in other.render()


def test_a_gauge_with_labels_can_be_written_anew() -> None:
    metrics = Metrics()
    metrics.delivery_states.labels("uncertain").set(4)
    metrics.delivery_states.clear()
    metrics.delivery_states.labels("pending").set(1)
    text = metrics.render().decode()
    assert 'state="pending"' in text
    assert "uncertain}" not in text
    assert 'state="uncertain"' not in text


def test_a_wrong_number_of_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        Metrics().events.labels("slack")
