"""What the demo tells its worker process, as one environment variable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

from schemas.signing import SigningKey

Fault = Literal["dedupe", "recover", "reconcile", "recall"]

CHANNEL: Final = "parcels"
ACCOUNT: Final = "shop"
CHAT: Final = "ada"
AGENT: Final = "helper"
LEASE_SECONDS: Final = 3
VARIABLE: Final = "PARLEY_DEMO_PLAN"


@dataclass(frozen=True, slots=True)
class Plan:
    """One life of the worker. `dies_after` journal commits it holds still until it is killed; None: it lives."""

    database_url: str
    bootstrap: str
    replies_to: str
    secret: str
    asked_log: str
    """A file that gets one line each time the model is really asked."""
    fault: Fault | None
    dies_after: int | None

    @property
    def key(self) -> SigningKey:
        """Signs what the platform posts and what the worker sends."""
        return SigningKey.parse("demo", self.secret)

    def environment(self) -> dict[str, str]:
        """For the process's start."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Plan:
        """What `environment()` wrote."""
        return cls(**json.loads(environment[VARIABLE]))
