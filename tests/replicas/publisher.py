"""Signed events over many chats at a steady pace; an event stands in the list once its publish was acknowledged."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from schemas.envelope import SealedEvent, seal
from schemas.event import Event
from schemas.identity import DIRECT, Principal
from tests.checker.evidence import Published
from tests.replicas.app import CHANNELS, LISTENERS
from tests.support.events import KEYS

FLUSH_SECONDS = 60
TWICE_EVERY = 20
TWICE_AFTER_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Chat:
    """Where events come from; the agent works between `quickest` and `longest` milliseconds on each."""

    name: str
    channel: str
    kind: str
    quickest: int = 0
    longest: int = 0


def chats() -> list[Chat]:
    """Those of a run; bound ones on every channel, some with slow agents, some whose answers are slow."""
    return [
        *(Chat(f"quick-{n}", "hook", "message", longest=10) for n in range(8)),
        *(Chat(f"long-{n}", "hook", "message", 800, 1500) for n in range(12)),
        *(Chat(f"asked-{n}", "asked", "message", longest=10) for n in range(6)),
        *(Chat(f"silent-{n}", "silent", "message", longest=10) for n in range(4)),
        *(Chat(f"plain-{n}", "hook", "command", longest=10) for n in range(4)),
        *(Chat(f"both-{n}", "hook", "both", longest=10) for n in range(4)),
        *(Chat(f"slow-{n}", "hook", "message", longest=10) for n in range(4)),
    ]


WEIGHTS = {"quick": 3.0, "long": 1.2, "asked": 2.0, "silent": 2.0, "plain": 2.0, "both": 2.0, "slow": 0.8}
"""How often events come from a chat of that name, in proportion."""
TWO_AT_ONCE = 0.3
"""How often a chat says two things at once, so that a turn waits behind another."""


class Publisher:
    """`start()`, then `stop()`: what was published by then is on the brokers, or NotPublished is raised."""

    def __init__(self, bootstrap: str, topic: str, event_list: Path, per_second: float, seed: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": FLUSH_SECONDS * 1000,
                "log_level": 2,
            }
        )
        self._topic = topic
        self._list = event_list.open("w", encoding="utf-8")
        self._every = 1 / per_second
        self._chance = random.Random(seed)
        self._chats = chats()
        self._weights = [WEIGHTS[chat.name.partition("-")[0]] for chat in self._chats]
        self._sequences: Counter[str] = Counter()
        self._again: list[tuple[float, SealedEvent]] = []
        self._failures: list[str] = []
        self._asked_to_stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self.acknowledged = 0
        self.repeats = True
        """Whether some events are published twice."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        """How many events were acknowledged."""
        self._asked_to_stop.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_SECONDS)
        self._list.close()
        if left or self._failures:
            raise NotPublished(f"{left} events not acknowledged, {self._failures[:3]}")
        return self.acknowledged

    def _run(self) -> None:
        due = time.monotonic()
        while not self._asked_to_stop.is_set():
            [chat] = self._chance.choices(self._chats, self._weights)
            for _ in range(2 if self._chance.random() < TWO_AT_ONCE else 1):
                self._publish(chat)
                due += self._every
            self._repeat_what_is_due()
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(min(left, 0.05))

    def _publish(self, chat: Chat) -> None:
        sequence = self._sequences[chat.name]
        self._sequences[chat.name] += 1
        event_id, now = f"{chat.name}-{sequence}", datetime.now(UTC)
        event = Event(
            event_id=event_id,
            channel=chat.channel,
            account="default",
            chat=chat.name,
            audience=DIRECT,
            kind=chat.kind,
            principal=Principal(f"user-{chat.name}"),
            text=f"{event_id} {self._chance.randint(chat.quickest, chat.longest)}",
            occurred_at=now,
        )
        sealed = seal(event, KEYS.signing, now)
        known = Published(
            event_id, chat.name, sequence, chat.channel, CHANNELS[chat.channel].value, LISTENERS[chat.kind]
        )
        self._produce(sealed, known)
        if self.repeats and sum(self._sequences.values()) % TWICE_EVERY == 0:
            self._again.append((time.monotonic() + TWICE_AFTER_SECONDS, sealed))

    def _repeat_what_is_due(self) -> None:
        while self._again and self._again[0][0] <= time.monotonic():
            self._produce(self._again.pop(0)[1], None)

    def _produce(self, sealed: SealedEvent, known: Published | None) -> None:
        def answered(error: Any, _message: Any) -> None:
            if error is not None:
                self._failures.append(str(error))
            elif known is not None:
                self._list.write(json.dumps(asdict(known)) + "\n")
                self._list.flush()
                self.acknowledged += 1

        self._producer.produce(
            self._topic, sealed.value, sealed.key, headers=dict(sealed.headers), on_delivery=answered
        )


class NotPublished(Exception):
    """The brokers did not acknowledge all events in time: the run says nothing."""
