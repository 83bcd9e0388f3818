"""How much one visitor may do: a token bucket each, for a bounded number of visitors."""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MOST_VISITORS: Final = 10_000


class RateLimit:
    """`burst` at once, then `per_second`; `clock` is monotonic seconds. Visitors long unseen are forgotten."""

    def __init__(self, burst: int, per_second: float, clock: Callable[[], float]) -> None:
        self._burst = burst
        self._per_second = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, visitor: str) -> int:
        """0 when the visitor may go on (and has now used one), else whole seconds until the next try."""
        now = self._clock()
        tokens, at = self._buckets.pop(visitor, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - at) * self._per_second)
        allowed = tokens >= 1
        self._buckets[visitor] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MOST_VISITORS:
            self._buckets.popitem(last=False)
        return 0 if allowed else max(1, math.ceil((1 - tokens) / self._per_second))
