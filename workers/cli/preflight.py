"""The checks behind `parley check`, part by part; each adds one line a mistake and opens nothing for writing."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from schemas.errors import ParleyError
from schemas.keys import KeyFile, KeyFileProblem, readable_by_others
from workers.api.operators import OperatorTokens, TokenFileProblem
from workers.app import App
from workers.channels.port import Channel
from workers.cli.edge import exit_code, lines_of
from workers.kafka.broker import TopicState, require_topics
from workers.kafka.topics import TopicPromises, promises
from workers.operations import facts
from workers.operations.facts import OpenRuns
from workers.postgres.database import Connection, Database

if TYPE_CHECKING:
    from workers.roles.settings import Settings

OLDEST_POSTGRES: Final = 150_000
SAFE_REPLICATION: Final = 3
SAFE_IN_SYNC: Final = 2
MARGIN: Final = timedelta(days=1)


class Findings(Protocol):
    """Where the lines go."""

    errors: list[str]
    warnings: list[str]


def file_warnings(paths: Iterable[Path]) -> list[str]:
    """Which secret files anybody on the machine may read; a file that cannot be read is its reader's to name."""
    return [
        f"{path} is readable by everybody: chmod o-r it"
        for path in paths
        if path.is_file() and readable_by_others(path)
    ]


def check_app(app: App, settings: "Settings | None", findings: Findings) -> None:
    """The app's channels against their keys and the grace period, and what it keeps for ever."""
    listened = {subscription.channel for agent in app.agents.values() for subscription in agent.subscriptions}
    for channel in app.channels.values():
        _check_keys(channel, channel.name in listened, findings)
        if settings is not None and channel.transport_timeout >= settings.grace:
            findings.errors.append(
                f"channel {channel.name}: its transport timeout ({channel.transport_timeout}) must be below "
                f"PARLEY_GRACE ({settings.grace}), or a drain cuts sends off"
            )
    findings.warnings += [
        f"agent {agent.name} has no subscription: no event ever starts it"
        for agent in app.agents.values()
        if not agent.subscriptions
    ]
    if app.conversations is not None and settings is not None and settings.retention.conversations is None:
        findings.warnings.append(
            "pruning of conversation items is not enabled: conversations that nobody uses any more keep theirs; "
            "set PARLEY_KEEP_CONVERSATIONS"
        )


def check_operators(tokens_file: Path | None, findings: Findings) -> None:
    """The operators' token file as a starting worker reads it."""
    if tokens_file is not None:
        try:
            OperatorTokens(tokens_file)
        except TokenFileProblem as problem:
            findings.errors.append(f"PARLEY_OPERATOR_TOKENS_FILE: {problem}")


def _check_keys(channel: Channel, listened: bool, findings: Findings) -> None:
    try:
        keys = channel.keys.verify_keys(channel.name) if channel.keys is not None else ()
    except KeyFileProblem as problem:
        findings.errors.append(f"channel {channel.name}: key file {problem}")
        return
    if listened and not keys:
        findings.errors.append(
            f"channel {channel.name} has no key that proves its events: every one would be refused as unauthenticated"
        )
    if isinstance(channel.keys, KeyFile):
        _check_key_file(channel.name, channel.keys.path, findings)


def _check_key_file(channel: str, path: Path, findings: Findings) -> None:
    """Read it again: a running worker would go on with the last good keys, a starting one would stop."""
    try:
        KeyFile(path, channel)
    except KeyFileProblem as problem:
        findings.errors.append(f"channel {channel}: key file {problem}")
        return
    findings.warnings += [f"channel {channel}: key file {line}" for line in file_warnings([path])]


async def check_database(url: str, app: App | None, findings: Findings) -> None:
    """Reach it, compare its schema version, and look for runs that this app could not take on."""
    try:
        database = await Database.open(url, min_size=1, max_size=1, application_name="parley-check")
    except Exception as error:
        if exit_code(error) is None:
            raise
        findings.errors += lines_of(error)
        return
    try:
        async with facts.looking(database) as tx:
            server = await facts.read_server(tx)
            if server.version_number < OLDEST_POSTGRES:
                findings.errors.append(f"the database is PostgreSQL {server.version}: 15 or newer is needed")
            if server.in_recovery:
                findings.errors.append("the database is a standby and takes no writes: point at the primary")
        if await _check_schema(url, findings):
            async with facts.looking(database) as tx:
                await _check_open_runs(tx, app, findings)
    except Exception as error:
        if exit_code(error) is None:
            raise
        findings.errors += lines_of(error)
    finally:
        await database.close()


async def _check_schema(url: str, findings: Findings) -> bool:
    """Whether the tables are those of this version."""
    from migrations import runner

    version, newest = await asyncio.to_thread(runner.current, url), runner.head()
    if version == newest:
        return True
    if version is None:
        findings.errors.append(f"the database has no tables of parley: run `parley migrate` to get {newest}")
    elif version in runner.known():
        findings.errors.append(
            f"the schema is older ({version}) than this version's {newest}: run `parley migrate`"
        )
    else:
        findings.errors.append(
            f"the schema is at {version}, which this version (newest {newest}) does not know: use a newer parley"
        )
    return False


async def _check_open_runs(tx: Connection, app: App | None, findings: Findings) -> None:
    if app is not None:
        for runs in await facts.read_open_runs(tx):
            if (line := stranded(runs, app)) is not None:
                findings.warnings.append(line)


def stranded(runs: OpenRuns, app: App) -> str | None:
    """Why `app` would not take on these open runs as they are, or None."""
    agent = app.agents.get(runs.agent)
    count = f"{runs.runs} open run{'' if runs.runs == 1 else 's'} of agent {runs.agent}"
    if agent is None:
        return (
            f"{count} (oldest {runs.oldest}): this app has no such agent, and nobody claims them; "
            f"end them with `parley runs cancel --agent {runs.agent} --yes`"
        )
    if runs.memory_key is None or agent.memory_key == runs.memory_key:
        return None
    now = "it now keeps none" if agent.memory_key is None else f"the agent's is now {agent.memory_key}"
    return (
        f"{count} were admitted under memory key {runs.memory_key}, and {now}: they fail when their turn comes; "
        f"let them end under the old key, or end them with `parley runs cancel --agent {runs.agent} --yes`"
    )


async def check_kafka(settings: "Settings", findings: Findings) -> None:
    """Reach it, find the topics, and compare what the cluster promises with what this installation needs."""
    kafka = settings.kafka
    try:
        states = await require_topics(kafka, kafka.topics)
        for topic, state in states.items():
            await _check_topic(settings, topic, state, findings)
    except ParleyError as error:
        findings.errors += lines_of(error)


async def _check_topic(settings: "Settings", topic: str, state: TopicState, findings: Findings) -> None:
    try:
        promised = await promises(settings.kafka, topic)
    except ParleyError as error:
        findings.warnings.append(f"what Kafka promises of {topic} is not known: {error}")
        return
    findings.warnings += weak_promises(topic, state.replication, promised)
    if topic == settings.kafka.events_topic:
        findings.errors += retention_problems(
            topic, promised.retention, settings.idempotency_ttl, settings.longest_outage
        )


def weak_promises(topic: str, replication: int, promised: TopicPromises) -> list[str]:
    """How a lost broker could lose records of `topic`, or stop them, one line each."""
    found = []
    if replication < SAFE_REPLICATION:
        found.append(
            f"topic {topic} has replication {replication}: with fewer than {SAFE_REPLICATION} a lost broker "
            "can lose events"
        )
    elif promised.min_insync_replicas < SAFE_IN_SYNC:
        found.append(
            f"topic {topic} has min.insync.replicas {promised.min_insync_replicas}: with fewer than {SAFE_IN_SYNC} "
            "an event counts as written while one broker alone has it"
        )
    elif promised.min_insync_replicas >= replication:
        found.append(
            f"topic {topic} has min.insync.replicas {promised.min_insync_replicas} of {replication}: one broker "
            "away, and nothing can be written"
        )
    if promised.unclean_election:
        found.append(
            f"topic {topic} has unclean.leader.election.enable on: a broker that lags behind can become leader, and "
            "what it lacks is gone"
        )
    return found


def retention_problems(
    topic: str, kept: timedelta | None, ttl: timedelta, longest_outage: timedelta
) -> list[str]:
    """What is wrong about how long events are kept, one line each."""
    if kept is None:
        return [
            f"topic {topic} keeps records for ever, and reservations live {ttl}: a replay would run events again; "
            "set retention.ms"
        ]
    found = []
    if kept + MARGIN > ttl:
        found.append(
            f"topic {topic} keeps records {kept}: PARLEY_IDEMPOTENCY_TTL ({ttl}) must be at least a day more"
        )
    if kept < longest_outage:
        found.append(
            f"topic {topic} keeps records {kept}: an outage of PARLEY_LONGEST_OUTAGE ({longest_outage}) would lose "
            "events; raise retention.ms"
        )
    return found
