"""What this process says of itself: named probes, asked when someone asks, bounded in time.

A probe that raises, or does not answer in time, says no; why is logged when its answer changes. Liveness asks
only the probes that say "restart me", readiness asks all of them.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import structlog

log = structlog.get_logger(__name__)

Probe = Callable[[], bool | Awaitable[bool]]
Affects = Literal["ready", "live"]


@dataclass(frozen=True, slots=True)
class _Named:
    name: str
    ask: Probe
    affects: Affects


class Health:
    """Register probes while the worker is composed; a process without probes is live and ready."""

    def __init__(self, answer_within: timedelta = timedelta(seconds=1)) -> None:
        self._within = answer_within.total_seconds()
        self._probes: dict[str, _Named] = {}
        self._since = time.monotonic()
        self._last: dict[str, tuple[bool, float]] = {}
        """The last answer of each probe, and since when it is so."""
        self._asked: dict[str, asyncio.Future[bool]] = {}
        """Answers under way; one that outlives its time is cancelled, and nobody waits for its end."""

    def register(self, name: str, probe: Probe, affects: Affects = "ready") -> None:
        """Add a probe; a later one under the same name takes its place."""
        self._probes[name] = _Named(name, probe, affects)

    async def live(self) -> Mapping[str, bool]:
        """The answers of the probes that affect liveness, by name."""
        return await self._ask([probe for probe in self._probes.values() if probe.affects == "live"])

    async def ready(self) -> Mapping[str, bool]:
        """The answers of all probes, by name: what is not live is not ready either."""
        return await self._ask(list(self._probes.values()))

    async def _ask(self, probes: list[_Named]) -> Mapping[str, bool]:
        answers = await asyncio.gather(*(self._answer(probe) for probe in probes))
        return dict(zip((probe.name for probe in probes), answers, strict=True))

    async def _answer(self, probe: _Named) -> bool:
        error = None
        try:
            holds = await self._in_time(probe)
        except Exception as raised:
            holds, error = False, type(raised).__name__
        held, since = self._last.get(probe.name, (True, self._since))
        if held != holds:
            now = time.monotonic()
            log.warning(
                "health.changed",
                probe=probe.name,
                holds=holds,
                error=error,
                after_seconds=round(now - since, 3),
            )
            since = now
        self._last[probe.name] = (holds, since)
        return holds

    async def _in_time(self, probe: _Named) -> bool:
        """The probe's answer; raises TimeoutError, also where it does not let itself be cancelled."""
        asked = self._asked.get(probe.name)
        if asked is None or asked.done():
            asked = self._asked[probe.name] = asyncio.ensure_future(_ask(probe))
            asked.add_done_callback(_hear)
        await asyncio.wait({asked}, timeout=self._within)
        if not asked.done() or asked.cancelled():
            asked.cancel()
            raise TimeoutError
        return asked.result()


async def _ask(probe: _Named) -> bool:
    answer = probe.ask()
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _hear(asked: asyncio.Future[bool]) -> None:
    """Nobody may be waiting any more for what it failed with."""
    if not asked.cancelled():
        asked.exception()
