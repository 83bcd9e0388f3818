"""What the receiver's log proves: how fast, how late, and whether anything was lost, doubled or out of order."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.control import Arrival

BACKLOG, PACED = "b", "l"


@dataclass(frozen=True, slots=True)
class Speed:
    """Turns a second: between the first and the last first arrival, and from the start of the process."""

    turns_per_s: float
    turns_per_s_from_start: float


@dataclass(frozen=True, slots=True)
class Faults:
    """All zero when the promise was kept."""

    duplicates: int
    lost: int
    order_violations: int

    @property
    def none(self) -> bool:
        return self == Faults(0, 0, 0)


def speed(arrivals: Sequence[Arrival], started: int) -> Speed:
    """Of the backlog; each (conversation, sequence) counts once, at its first arrival."""
    times = [arrival.at for arrival in first_arrivals(arrivals) if arrival.phase == BACKLOG]
    if len(times) < 2:
        return Speed(0.0, 0.0)
    span, whole = max(times) - min(times), max(times) - started
    return Speed((len(times) - 1) / (span / 1e9), len(times) / (whole / 1e9))


def faults(arrivals: Sequence[Arrival], published: Mapping[int, int]) -> Faults:
    """`published` says how many events each conversation had: 0, 1, 2 ... must have arrived, once, in order."""
    firsts = first_arrivals(arrivals)
    sequences: defaultdict[int, list[int]] = defaultdict(list)
    for arrival in firsts:
        sequences[arrival.conversation].append(arrival.sequence)
    disordered = sum(
        later < earlier for numbers in sequences.values() for earlier, later in pairwise(numbers)
    )
    return Faults(_duplicates(arrivals), sum(published.values()) - len(firsts), disordered)


def _duplicates(arrivals: Sequence[Arrival]) -> int:
    by_id = Counter(arrival.webhook_id for arrival in arrivals)
    ids_of: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    for arrival in arrivals:
        ids_of[arrival.conversation, arrival.sequence].add(arrival.webhook_id)
    repeated = sum(count - 1 for count in by_id.values())
    return repeated + sum(len(ids) - 1 for ids in ids_of.values())


def first_arrivals(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The first of each (conversation, sequence), in order of arrival."""
    firsts: dict[tuple[int, int], Arrival] = {}
    for arrival in arrivals:
        firsts.setdefault((arrival.conversation, arrival.sequence), arrival)
    return list(firsts.values())


def latency_ms(arrivals: Sequence[Arrival], *percents: int) -> list[float]:
    """Percentiles (nearest rank) of publish call to arrival, of the paced phase; 0 where nothing arrived."""
    waits = sorted(
        (arrival.at - arrival.published) / 1e6
        for arrival in first_arrivals(arrivals)
        if arrival.phase == PACED
    )
    if not waits:
        return [0.0 for _ in percents]
    return [round(waits[-(-percent * len(waits) // 100) - 1], 1) for percent in percents]
