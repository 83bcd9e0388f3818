"""What a worker process sets for itself once its parts stand."""

import gc

YOUNG_OBJECTS = 20_000
"""Allocations between two collections of the youngest generation; Python's 700 finds little and costs much here."""


def settle_garbage_collector() -> None:
    """Leave what start-up made out of every later collection, and collect the young less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)
