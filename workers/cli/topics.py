"""`parley topics`: create, list."""

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
