"""Settings of a worker process, read from PARLEY_* environment variables; every mistake is named at once.

Secrets may be given as files (`PARLEY_DATABASE_URL_FILE`), so that they stand in no process listing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from schemas.errors import Misconfigured
from workers.kafka.settings import KafkaSettings
from workers.operations.retention import ADDRESS_MARGIN, Retention

V = TypeVar("V")

Role = Literal["intake", "turns", "delivery", "api", "sweeper"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

MIN_IDEMPOTENCY_TTL: Final = timedelta(hours=48)
KEPT_BY_DEFAULT: Final = Retention()
MOST_POLL_EVERY: Final = timedelta(milliseconds=250)
_DAY: Final = timedelta(days=1)
_HOST: Final = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::(\d{0,5}))?")
_LAST_PORT: Final = 65535
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class InvalidSettings(Misconfigured):
    """The settings cannot be used; `problems` names each mistake in one line, without secrets."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Settings:
    """One worker process. Durations in the environment are written `250ms`, `15s`, `10m`, `2h` or `7d`."""

    database_url: str
    kafka: KafkaSettings
    roles: frozenset[Role] = frozenset(ROLES)
    slots: int = 64
    sends: int = 64
    lease_for: timedelta = timedelta(seconds=15)
    recall_wait: timedelta = timedelta(seconds=2)
    poll_every: timedelta = timedelta(milliseconds=250)
    idempotency_ttl: timedelta = timedelta(days=7)
    event_age_limit: timedelta = timedelta(days=6)
    longest_outage: timedelta = timedelta(days=2)
    grace: timedelta = timedelta(seconds=30)
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    log_level: str = "info"
    log_json: bool = True
    pool_size: int = 8
    retention: Retention = KEPT_BY_DEFAULT
    operator_tokens_file: Path | None = None


def read_settings(environment: Mapping[str, str] | None = None, **overrides: object) -> Settings:
    """The settings that `environment` (default: the process's) and then `overrides` say. Raises InvalidSettings."""
    reader = _Reader(os.environ if environment is None else environment)
    database_url = reader.secret("DATABASE_URL")
    if not database_url:
        reader.problems.append(
            "PARLEY_DATABASE_URL is not set: give a postgresql:// URL, or use `parley dev`"
        )
    elif not _is_postgres_url(database_url):
        reader.problems.append("PARLEY_DATABASE_URL is not a postgresql:// URL")
    values: dict[str, object] = {
        "database_url": database_url,
        "kafka": _kafka(reader),
        "roles": reader.roles("ROLES"),
        "slots": reader.number("SLOTS", 64, least=1),
        "sends": reader.number("SENDS", 64, least=1),
        "lease_for": reader.duration("LEASE", timedelta(seconds=15), least=timedelta(seconds=1)),
        "recall_wait": reader.duration("RECALL_WAIT", timedelta(seconds=2)),
        "poll_every": reader.duration("POLL_EVERY", MOST_POLL_EVERY, most=MOST_POLL_EVERY),
        "idempotency_ttl": reader.duration("IDEMPOTENCY_TTL", timedelta(days=7)),
        "longest_outage": reader.duration("LONGEST_OUTAGE", timedelta(days=2)),
        "grace": reader.duration("GRACE", timedelta(seconds=30)),
        "http_host": reader.text("HTTP_HOST", "127.0.0.1"),
        "http_port": reader.number("HTTP_PORT", 8080, least=0),
        "log_level": reader.choice("LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        "log_json": reader.choice("LOG_FORMAT", "json", ("json", "console")) == "json",
        "pool_size": reader.number("POOL_SIZE", 8, least=2),
        "retention": _retention(reader),
        "operator_tokens_file": Path(tokens) if (tokens := reader.text("OPERATOR_TOKENS_FILE", "")) else None,
    }
    ttl = values["idempotency_ttl"]
    assert isinstance(ttl, timedelta)
    values["event_age_limit"] = reader.duration("EVENT_AGE_LIMIT", max(ttl - _DAY, _DAY))
    values.update(overrides)
    problems = [*reader.problems, *(problems_of_times(values) if not reader.problems else [])]
    if problems:
        raise InvalidSettings(problems)
    return Settings(**values)  # type: ignore[arg-type]  # each value was read as its field's type


def problems_of_times(values: Mapping[str, object]) -> list[str]:
    """What is wrong between the durations of one process."""
    ttl, age, kafka = values["idempotency_ttl"], values["event_age_limit"], values["kafka"]
    retention, outage = values["retention"], values["longest_outage"]
    assert isinstance(ttl, timedelta)
    assert isinstance(age, timedelta)
    assert isinstance(kafka, KafkaSettings)
    assert isinstance(retention, Retention)
    assert isinstance(outage, timedelta)
    least = max(MIN_IDEMPOTENCY_TTL, kafka.retention + _DAY)
    problems = []
    if ttl < least:
        problems.append(
            f"PARLEY_IDEMPOTENCY_TTL is {ttl}, and must be at least {least}: topic retention plus a day, and 48 h"
        )
    if age > ttl:
        problems.append(
            f"PARLEY_EVENT_AGE_LIMIT is {age}, and must not be above PARLEY_IDEMPOTENCY_TTL ({ttl})"
        )
    if age < outage:
        problems.append(
            f"PARLEY_EVENT_AGE_LIMIT is {age}, and must be at least PARLEY_LONGEST_OUTAGE ({outage}): events of an "
            "outage would be too old after it"
        )
    return [*problems, *retention.problems(ttl)]


def _retention(reader: _Reader) -> Retention:
    kept = KEPT_BY_DEFAULT
    forever = reader.text("KEEP_CONVERSATIONS", "forever") == "forever"
    runs = reader.duration("KEEP_RUNS", kept.runs)
    return Retention(
        runs=runs,
        mailbox=reader.duration("KEEP_MAILBOX", kept.mailbox),
        addresses=reader.duration("KEEP_ADDRESSES", max(kept.addresses, runs + ADDRESS_MARGIN)),
        audit=reader.duration("KEEP_AUDIT", kept.audit),
        sessions=reader.duration("KEEP_SESSIONS", kept.sessions),
        conversations=None if forever else reader.duration("KEEP_CONVERSATIONS", kept.runs),
    )


def _kafka(reader: _Reader) -> KafkaSettings | None:
    bootstrap = reader.text("KAFKA_BOOTSTRAP", "")
    if not bootstrap:
        reader.problems.append("PARLEY_KAFKA_BOOTSTRAP is not set: give host:port, or use `parley dev`")
        return None
    defaults = KafkaSettings(bootstrap="localhost:9092")
    password_file = reader.text("KAFKA_PASSWORD_FILE", "")
    ca_file = reader.text("KAFKA_CA_FILE", "")
    try:
        return KafkaSettings(
            bootstrap=bootstrap,
            security=reader.choice(
                "KAFKA_SECURITY", "PLAINTEXT", ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
            ),  # type: ignore[arg-type]  # the reader gives one of these words
            user=reader.text("KAFKA_USER", "") or None,
            password_file=Path(password_file) if password_file else None,
            ca_file=Path(ca_file) if ca_file else None,
            events_topic=reader.text("EVENTS_TOPIC", defaults.events_topic),
            deliveries_topic=reader.text("DELIVERIES_TOPIC", defaults.deliveries_topic),
            dead_topic=reader.text("DEAD_TOPIC", defaults.dead_topic),
            partitions=reader.number("TOPIC_PARTITIONS", defaults.partitions, least=1),
            replication=reader.number("TOPIC_REPLICATION", defaults.replication, least=1),
            retention=reader.duration("TOPIC_RETENTION", defaults.retention),
            group_prefix=reader.text("KAFKA_GROUP", defaults.group_prefix),
            session_timeout=reader.duration("KAFKA_SESSION_TIMEOUT", defaults.session_timeout),
        )
    except Misconfigured as problem:
        reader.problems.append(str(problem))
        return None


def _is_postgres_url(url: str) -> bool:
    """By its scheme and by the port of each host; a malformed password cannot break it open."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    hosts = [_HOST.fullmatch(host) for host in parts.netloc.rpartition("@")[2].split(",")]
    return parts.scheme in ("postgresql", "postgres") and all(
        host is not None and int(host[1] or 0) <= _LAST_PORT for host in hosts
    )


class _Reader:
    """Reads one variable at a time and collects what is wrong."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def text(self, name: str, default: str) -> str:
        return self._environment.get(f"PARLEY_{name}", "").strip() or default

    def secret(self, name: str) -> str:
        """The variable's own value, or the content of the file that `PARLEY_<name>_FILE` names."""
        path = self._environment.get(f"PARLEY_{name}_FILE")
        if not path:
            return self.text(name, "")
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.problems.append(f"PARLEY_{name}_FILE cannot be read: {type(error).__name__} at {path}")
            return ""

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in choices:
            self.problems.append(f"PARLEY_{name} is {value!r}, and must be one of {', '.join(choices)}")
            return default
        return value

    def number(self, name: str, default: int, *, least: int) -> int:
        return self._parsed(
            name, default, int, f"a whole number, at least {least}", lambda value: value >= least
        )

    def duration(
        self,
        name: str,
        default: timedelta,
        *,
        least: timedelta = timedelta(milliseconds=1),
        most: timedelta = timedelta.max,
    ) -> timedelta:
        bounds = f"at least {least}" if most is timedelta.max else f"from {least} to {most}"
        return self._parsed(
            name,
            default,
            parse_duration,
            f"a duration like 15s or 7d, {bounds}",
            lambda value: least <= value <= most,
        )

    def roles(self, name: str) -> frozenset[Role]:
        words = {word.strip() for word in self.text(name, ",".join(ROLES)).split(",") if word.strip()}
        if unknown := sorted(words - set(ROLES)):
            self.problems.append(
                f"PARLEY_{name} names {', '.join(unknown)}, and the roles are {', '.join(ROLES)}"
            )
        return frozenset(role for role in ROLES if role in words)

    def _parsed(
        self, name: str, default: V, parse: Callable[[str], V], wanted: str, holds: Callable[[V], bool]
    ) -> V:
        written = self.text(name, "")
        if not written:
            return default
        try:
            value = parse(written)
        except (ValueError, OverflowError):
            value = None
        if value is None or not holds(value):
            self.problems.append(f"PARLEY_{name} is {written!r}, and must be {wanted}")
            return default
        return value


def parse_duration(written: str) -> timedelta:
    """`250ms`, `15s`, `10m`, `2h` or `7d` as a timedelta; raises ValueError."""
    for unit in ("ms", "s", "m", "h", "d"):
        number = written.removesuffix(unit)
        if number != written and number.replace(".", "", 1).isdigit():
            return timedelta(seconds=float(number) * _UNITS[unit])
    raise ValueError(written)
