"""Every metric of this project, in one list, with labels that cannot grow with traffic.

Labels hold configured names (channel, agent, topic) and closed sets (outcome, kind, state, reason, queue):
never an id, an address or a user. Beyond `most_values` values of one label all further ones count as `other`.
Gauges that are read from the database say the same on every replica: aggregate them by max; `describe` says
how to aggregate each one over processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

M = TypeVar("M", bound=MetricWrapperBase)

OTHER = "other"
_PREFIX = "parley_"
_MOST_VALUES = 200
_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Described:
    """One line of the table for the documentation."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    aggregate: str


class Labelled(Generic[M]):
    """A metric with labels: `labels(...)`, by position, gives the child to count on."""

    def __init__(self, metric: M, names: Sequence[str], most_values: int) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], M] = {}
        self._seen: tuple[set[str], ...] = tuple(set() for _ in names)
        self._most_values = most_values

    def labels(self, *values: str) -> M:
        """The child for these values, in the order in which `describe` lists the labels."""
        child = self._children.get(values)
        if child is None:
            bounded = tuple(self._bound(seen, value) for seen, value in zip(self._seen, values, strict=True))
            child = self._metric.labels(*bounded)
            if bounded == values:
                self._children[values] = child
        return child

    def clear(self) -> None:
        """Forget all children: before a gauge is written anew from the database."""
        self._children.clear()
        self._metric.clear()

    def _bound(self, seen: set[str], value: str) -> str:
        if value in seen or value == OTHER:
            return value
        if len(seen) >= self._most_values:
            return OTHER
        seen.add(value)
        return value


class Metrics:
    """One set of metrics over a registry of its own; make one for each process (or test) and pass it on."""

    def __init__(self, most_values: int = _MOST_VALUES) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._described: list[Described] = []
        self._most_values = most_values
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        counters, gauges, histograms = self._counters, self._gauges, self._histograms

        self.events = counters("events", "Events by what became of them", "channel", "outcome")
        self.dead_letters = counters("dead_letters", "Records written to the dead letter topic", "reason")
        self.admission_seconds = histogram(
            "admission_seconds", "From the record's timestamp to the commit of its run", _QUICK
        )
        self.policy_decisions = counters("policy_decisions", "Answers of authorize", "outcome")
        self.consumer_lag = gauges("consumer_lag", "Records not yet acknowledged here", "sum", "topic")
        self.offsets_skipped = counters("offsets_skipped", "Offsets gone before they were read", "topic")

        self.queue_depth = gauge("queue_depth", "Runs that wait for a turn", "max")
        self.queue_oldest_seconds = gauge("queue_oldest_seconds", "Age of the oldest due run", "max")
        self.unclaimable_runs = gauge(
            "unclaimable_runs", "Waiting runs whose agent no living worker knows", "max"
        )
        self.paused = gauges(
            "paused", "What operators have paused: agents, channels, accounts", "max", "kind"
        )
        self.turns = counters("turns", "Turns by how they ended", "agent", "outcome")
        self.turn_seconds = histograms("turn_seconds", "From claim to settlement", _SLOW, "agent")
        self.turns_running = gauge("turns_running", "Turns of this process now", "sum")
        self.steps = counters("steps", "Journalled steps", "agent", "kind")
        self.tokens = counters("tokens", "Model tokens", "agent", "model", "direction")
        self.silent_memory_runs = counters(
            "silent_memory_runs", "Runs with memory that succeeded without a reply", "agent"
        )
        self.lease_renewals = counters("lease_renewals", "Renewals of this worker's lease", "outcome")
        self.lease_losses = counter("lease_losses", "Writes refused because the ownership was lost")
        self.takeovers = counter("takeovers", "Sessions of other workers found dead and taken over")

        self.deliveries = counters("deliveries", "Deliveries by how they ended", "channel", "outcome")
        self.attempts = counters("attempts", "Attempts to send by their outcome", "channel", "outcome")
        self.send_seconds = histograms("send_seconds", "One attempt to send", _QUICK, "channel")
        self.delivery_states = gauges(
            "delivery_states", "Deliveries that are pending, sending, uncertain or unknown", "max", "state"
        )
        self.oldest_pending_seconds = gauge("oldest_pending_seconds", "Age of the oldest due delivery", "max")

        self.http_requests = counters(
            "http_requests", "Requests by route template", "route", "method", "status_class"
        )
        self.operator_logins = counters(
            "operator_logins", "Requests to operators' routes by whether their token was accepted", "outcome"
        )
        self.ready = gauge("ready", "1 when this process is ready", "min")
        self.pool_in_use = gauges("pool_in_use", "Database connections in use", "sum", "pool")
        self.pool_size = gauges("pool_size", "Database connections open", "sum", "pool")
        self.group_commit_size = histograms(
            "group_commit_size", "Items of one batched transaction", _SIZES, "queue"
        )
        self.group_commit_seconds = histograms(
            "group_commit_seconds", "One batched transaction", _QUICK, "queue"
        )
        self.pruned_rows = counters("pruned_rows", "Rows removed by retention", "table")
        self.sweep_age_seconds = gauge(
            "sweep_age_seconds", "Since a sweeper ended a round; without any, since the oldest session", "max"
        )
        self.commands_dropped = gauge(
            "commands_dropped",
            "Addresses for which no delivery command was published, since the start",
            "sum",
        )
        self.log_lines_held_back = gauge(
            "log_lines_held_back", "Lines of the Kafka clients that were not written, since the start", "sum"
        )

    def batches(self, queue: str) -> Callable[[int, float], None]:
        """Counts the batches of one group commit: items and seconds of each."""
        sizes, durations = self.group_commit_size.labels(queue), self.group_commit_seconds.labels(queue)

        def observe(items: int, seconds: float) -> None:
            sizes.observe(items)
            durations.observe(seconds)

        return observe

    def describe(self) -> Sequence[Described]:
        """Every metric in the order above, for documentation."""
        return tuple(self._described)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        self._note(f"{name}_total", "counter", (), meaning, "sum")
        return Counter(f"{_PREFIX}{name}", meaning, registry=self.registry)

    def _counters(self, name: str, meaning: str, *labels: str) -> Labelled[Counter]:
        self._note(f"{name}_total", "counter", labels, meaning, "sum")
        metric = Counter(f"{_PREFIX}{name}", meaning, labels, registry=self.registry)
        return Labelled(metric, labels, self._most_values)

    def _gauge(self, name: str, meaning: str, aggregate: str) -> Gauge:
        self._note(name, "gauge", (), meaning, aggregate)
        return Gauge(f"{_PREFIX}{name}", meaning, registry=self.registry)

    def _gauges(self, name: str, meaning: str, aggregate: str, *labels: str) -> Labelled[Gauge]:
        self._note(name, "gauge", labels, meaning, aggregate)
        metric = Gauge(f"{_PREFIX}{name}", meaning, labels, registry=self.registry)
        return Labelled(metric, labels, self._most_values)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float]) -> Histogram:
        self._note(name, "histogram", (), meaning, "sum")
        return Histogram(f"{_PREFIX}{name}", meaning, registry=self.registry, buckets=buckets)

    def _histograms(
        self, name: str, meaning: str, buckets: Sequence[float], *labels: str
    ) -> Labelled[Histogram]:
        self._note(name, "histogram", labels, meaning, "sum")
        metric = Histogram(f"{_PREFIX}{name}", meaning, labels, registry=self.registry, buckets=buckets)
        return Labelled(metric, labels, self._most_values)

    def _note(self, name: str, kind: str, labels: tuple[str, ...], meaning: str, aggregate: str) -> None:
        self._described.append(Described(f"{_PREFIX}{name}", kind, labels, meaning, aggregate))
