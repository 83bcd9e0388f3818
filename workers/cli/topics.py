"""`parley topics`: create, list, rewind."""

from datetime import UTC, datetime

import typer

from workers.cli.edge import run
from workers.cli.output import print_json, print_line, print_table
from workers.cli.usage import Json

group = typer.Typer(no_args_is_help=True, help="Create the Kafka topics and look at them.")


@group.command()
def create(as_json: Json = False) -> None:
    """Create the topics that are missing, with their partitions, replication and retention."""
    run(_create(as_json))


@group.command("list")
def list_(as_json: Json = False) -> None:
    """The topics of this installation as the broker knows them."""
    run(_list(as_json))


@group.command()
def rewind(
    since: datetime = typer.Option(
        help="Read events again from this time on (UTC unless it names an offset).",
        formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S"],
    ),
    yes: bool = typer.Option(False, "--yes", help="Do it; without this it only shows what would be done."),
    as_json: Json = False,
) -> None:
    """Read events again after the database lost commits (fail-over, restored backup). No intake may run. Audited."""
    run(_rewind(since if since.tzinfo else since.replace(tzinfo=UTC), yes, as_json))


async def _create(as_json: bool) -> None:
    from workers.cli.connect import kafka_settings
    from workers.kafka.topics import create_topics

    settings = kafka_settings()
    created = await create_topics(settings)
    if as_json:
        print_json({"created": created, "topics": settings.topics})
        return
    for topic in settings.topics:
        print_line(f"{topic}: {'created' if topic in created else 'was there'}")


async def _list(as_json: bool) -> None:
    from workers.cli.connect import kafka_settings
    from workers.kafka.broker import describe
    from workers.kafka.topics import retention

    settings = kafka_settings()
    states = await describe(settings, settings.topics)
    lines = []
    for topic in settings.topics:
        state = states.get(topic)
        there = state is not None and state.partitions > 0
        lines.append(
            {
                "topic": topic,
                "exists": there,
                "partitions": state.partitions if state else 0,
                "replication": state.replication if state else 0,
                "retention": await retention(settings, topic) if there else None,
            }
        )
    if as_json:
        print_json(lines)
        return
    columns = ("topic", "exists", "partitions", "replication", "retention")
    print_table(columns, [tuple(line.values()) for line in lines], "no topics")


async def _rewind(since: datetime, yes: bool, as_json: bool) -> None:
    from workers.cli.connect import all_settings, open_database, operator
    from workers.operations import rewinding

    settings = all_settings()
    moves = await rewinding.plan(settings.kafka, since, datetime.now(UTC), settings.event_age_limit)
    if yes:
        async with open_database(settings.database_url) as database:
            await rewinding.carry_out(settings.kafka, database, moves, since, operator())
    again = sum(move.again for move in moves)
    if as_json:
        print_json({"done": yes, "since": since, "records_again": again, "partitions": moves})
        return
    print_table(
        ("partition", "is at", "goes to", "ends at", "read again"),
        [(move.partition, move.committed, move.target, move.end, move.again) for move in moves],
        "no partitions",
    )
    print_line(
        f"{again} records of {settings.kafka.events_topic} {'are' if yes else 'would be'} read again"
        + ("" if yes else "; nothing was done: give --yes to do it")
    )
