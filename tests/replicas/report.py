"""The table of a run: a row a promise, a column a fault."""

from __future__ import annotations

from collections.abc import Sequence

from tests.checker.promises import PROMISES
from tests.replicas.scenario import Outcome

SHOWN = 5


def table(outcomes: Sequence[Outcome]) -> str:
    """`holds`, or how often the promise was broken."""
    width = max(len(name) for name in PROMISES)
    heads = [outcome.fault for outcome in outcomes]
    rows = [" " * width + "".join(f"  {head:>10}" for head in heads)]
    for name in PROMISES:
        cells = []
        for outcome in outcomes:
            breaches = next((each.breaches for each in outcome.broken if each.promise == name), ())
            cells.append(f"BROKEN {len(breaches)}" if breaches else "holds")
        rows.append(f"{name:<{width}}" + "".join(f"  {cell:>10}" for cell in cells))
    rows.append(f"{'seconds':<{width}}" + "".join(f"  {each.seconds:>10.0f}" for each in outcomes))
    return "\n".join(rows)


def breaches(outcome: Outcome) -> list[str]:
    """The first breaches of each broken promise, one line each."""
    return [
        f"{broken.promise} broken by {outcome.fault}: {breach}"
        for broken in outcome.broken
        for breach in [*broken.breaches[:SHOWN], *_more(len(broken.breaches) - SHOWN)]
    ]


def _more(count: int) -> list[str]:
    return [f"and {count} more"] if count > 0 else []
