"""A warning that says nothing new is counted, not written: an outage must not fill the disk with one sentence.

The first line of its kind is always written, and then one every `EVERY_SECONDS`, which says how many were left out.
The lines of the Kafka clients, which differ in their arguments, are bounded by template in `workers.kafka.logs`.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

EVERY_SECONDS: Final = 10.0
MAX_KINDS: Final = 256


@dataclass(slots=True)
class _Kind:
    last_written: float
    left_out: int = 0


class Repeats:
    """Remembers the last `MAX_KINDS` kinds of lines; `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()

    def left_out(self, kind: Hashable) -> int | None:
        """How many lines of this `kind` were left out before this one; None when this one is to be left out too."""
        now, known = self._clock(), self._kinds.get(kind)
        if known is not None and now - known.last_written < EVERY_SECONDS:
            known.left_out += 1
            return None
        self._kinds[kind] = _Kind(now)
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)
        return known.left_out if known is not None else 0
