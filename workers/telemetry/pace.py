"""How long things took lately: a moving average that a loop widens or narrows itself by."""

from __future__ import annotations

WEIGHT = 0.05


class Pace:
    """An exponentially weighted mean of durations in seconds; not quick until the first one was noted."""

    def __init__(self) -> None:
        self._mean: float | None = None

    def note(self, seconds: float) -> None:
        """One more duration."""
        self._mean = seconds if self._mean is None else self._mean + WEIGHT * (seconds - self._mean)

    def is_quicker_than(self, seconds: float) -> bool:
        """Whether the mean is below `seconds`."""
        return self._mean is not None and self._mean < seconds
