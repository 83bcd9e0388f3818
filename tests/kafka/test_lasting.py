"""A Kafka client that dies for good takes nothing with it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import cast

import pytest

from workers.kafka.consumer import Batch, RecordConsumer
from workers.kafka.errors import ConsumerDied
from workers.kafka.lasting import LastingConsumer


class Client:
    """A client whose life is told beforehand: it dies, or hands out one batch and ends."""

    def __init__(self, dies: bool) -> None:
        self.dies = dies
        self.stopped = False

    async def run(self, handle: Callable[[Batch], Awaitable[None]]) -> None:
        if self.dies:
            raise ConsumerDied("events", "the coordinator is gone")
        await handle(Batch((), cast(RecordConsumer, self)))

    async def stop(self) -> None:
        self.stopped = True

    def drain(self) -> None:
        """Nothing to drain."""


@pytest.mark.rule("EN-39")
async def test_the_next_client_takes_the_place_of_one_that_died() -> None:
    lives = [Client(dies=True), Client(dies=True), Client(dies=False)]
    left = iter(lives)
    consumer = LastingConsumer(lambda: cast(RecordConsumer, next(left)), pause=timedelta(0))
    batches: list[Batch] = []

    async def handle(batch: Batch) -> None:
        batches.append(batch)

    await consumer.run(handle)

    assert len(batches) == 1
    assert consumer.deaths == 2
    assert [life.stopped for life in lives] == [True, True, False]


async def test_what_the_handler_raises_is_no_death_of_the_client() -> None:
    consumer = LastingConsumer(lambda: cast(RecordConsumer, Client(dies=False)))

    async def handle(batch: Batch) -> None:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        await consumer.run(handle)
