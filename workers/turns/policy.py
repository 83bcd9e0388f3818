"""What a worker may claim, what a crash costs a run, and how a turn ends. Pure.

Crash story: every run that was in flight when its worker died is a suspect. A suspect of n crashes shares a worker
with at most slots / 2**n suspects, itself included, so that many innocent runs recover in bulk while a poison one
is soon alone; only a run that was its worker's sole suspect is charged an attempt.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from schemas.run import RunStatus

ATTEMPTS_EXHAUSTED = "attempts exhausted"
DEFAULT_SLOTS = 64


@dataclass(frozen=True, slots=True)
class ReadyLane:
    """A lane that the ready queue offers, with the agent and the `channel/account` of its head run."""

    lane_id: int
    agent: str
    account: str


@dataclass(frozen=True, slots=True)
class Caps:
    """How many turns one worker runs at once: in all, and for one agent or one account."""

    slots: int = DEFAULT_SLOTS
    per_agent: int = DEFAULT_SLOTS
    per_account: int = DEFAULT_SLOTS

    @classmethod
    def for_slots(cls, slots: int, agents: int) -> "Caps":
        """An eighth of the slots stays free of any one account, and of any one agent where there are several."""
        most = max(1, slots - slots // 8)
        return cls(slots, most if agents > 1 else slots, most)


@dataclass(frozen=True, slots=True)
class Paused:
    """What operators have paused: agents, channels, and accounts as `channel/account`. Its turns wait."""

    agents: frozenset[str] = frozenset()
    channels: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()

    def holds(self, agent: str, channel: str, account: str) -> bool:
        """Does a turn of `agent` for this channel and account (as `channel/account`) wait?"""
        return agent in self.agents or channel in self.channels or account in self.accounts


NOTHING_PAUSED = Paused()

QUICK_AGENT_SECONDS = 0.05
WIDTH = 4
"""How many times its slots a worker owns at most, turns that wait for a commit or for a slot included."""


def widened(caps: Caps, quick: bool) -> Caps:
    """How many turns to own: of agents that take milliseconds more than run at once, for larger batches."""
    width = WIDTH if quick else 1
    return Caps(caps.slots * width, caps.per_agent * width, caps.per_account * width)


def in_turns(offered: Iterable[ReadyLane], after: tuple[str, str]) -> list[ReadyLane]:
    """The lanes so that each agent and account has its first before any has its second, once around behind `after`."""
    rounds: list[list[ReadyLane]] = []
    seen: Counter[tuple[str, str]] = Counter()
    for lane in sorted(
        offered, key=lambda lane: ((lane.agent, lane.account) <= after, lane.agent, lane.account)
    ):
        place = seen[lane.agent, lane.account]
        seen[lane.agent, lane.account] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(lane)
    return [lane for each in rounds for lane in each]


def pick(offered: Iterable[ReadyLane], active: Iterable[ReadyLane], caps: Caps) -> list[ReadyLane]:
    """The lanes to claim now, in the order offered, within the caps that `active` turns leave."""
    running = list(active)
    agents = Counter(lane.agent for lane in running)
    accounts = Counter(lane.account for lane in running)
    picked: dict[int, ReadyLane] = {}
    for lane in offered:
        if len(running) + len(picked) >= caps.slots:
            break
        if lane.lane_id in picked:
            continue
        if agents[lane.agent] < caps.per_agent and accounts[lane.account] < caps.per_account:
            picked[lane.lane_id] = lane
            agents[lane.agent] += 1
            accounts[lane.account] += 1
    return list(picked.values())


def agents_with_room(agents: Iterable[str], active: Iterable[ReadyLane], caps: Caps) -> list[str]:
    """The agents that may start another turn now."""
    running = Counter(lane.agent for lane in active)
    return [agent for agent in agents if running[agent] < caps.per_agent]


def accounts_without_room(active: Iterable[ReadyLane], caps: Caps) -> list[str]:
    """The accounts that may not start another turn now."""
    running = Counter(lane.account for lane in active)
    return [account for account, turns in running.items() if turns >= caps.per_account]


def suspect_limit(slots: int, crashes: int) -> int:
    """How many suspects may share a worker with one of `crashes` crashes, itself included."""
    return max(1, slots >> crashes)


def admits_suspect(slots: int, crashes: int, others: Sequence[int]) -> bool:
    """May a run of `crashes` crashes join a worker whose other suspects had `others` crashes each?"""
    if crashes == 0:
        return True
    together = len(others) + 1
    return all(together <= suspect_limit(slots, each) for each in (crashes, *others))


@dataclass(frozen=True, slots=True)
class InFlight:
    """A run that was in flight when its worker died."""

    run_id: UUID
    crashes: int
    attempts: int
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Verdict:
    run_id: UUID
    charged: bool
    exhausted: bool


def judge_crash(in_flight: Sequence[InFlight]) -> list[Verdict]:
    """What a crash of their worker costs each of its runs, in order."""
    suspects = [run for run in in_flight if run.crashes > 0] or in_flight
    sole = suspects[0].run_id if len(suspects) == 1 else None
    return [
        Verdict(run.run_id, run.run_id == sole, run.run_id == sole and run.attempts + 1 >= run.max_attempts)
        for run in in_flight
    ]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between tries of a run whose agent failed retryably: doubling from `first` to `most`."""

    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(minutes=5)


def retry_wait(retries: int, backoff: Backoff, asked: timedelta | None = None) -> timedelta:
    """How long the next try waits after `retries` earlier ones; never less than the failure `asked` for."""
    doubled = backoff.first * (1 << min(retries, 20))
    return max(min(doubled, backoff.most), min(asked or timedelta(0), timedelta(hours=1)))


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over, with its terminal status; `withhold_input` keeps its input out of later recall."""

    status: RunStatus
    reason: str | None = None
    withhold_input: bool = False


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The run goes on later from its journal; `charged` counts it among its retries."""

    wait: timedelta
    reason: str
    charged: bool = True


@dataclass(frozen=True, slots=True)
class LetGo:
    """The run goes back to the queue at once and nothing is charged: drain, or a lost session."""

    reason: str = "released"


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody else owns the turn now: nothing more is written."""


Ending = Ended | TryAgain | LetGo | Lost


def after_retryable(
    retries: int, max_retries: int, reason: str, backoff: Backoff, asked: timedelta | None
) -> Ending:
    """A retryable failure: again after a wait, until the agent's retries are used up."""
    if retries >= max_retries:
        return Ended(RunStatus.FAILED, f"retries exhausted: {reason}")
    return TryAgain(retry_wait(retries, backoff, asked), reason)
