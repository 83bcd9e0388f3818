"""Whatever is ready goes in one batch; only a data error splits it, and an outage refuses nobody."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import pytest
from structlog.testing import capture_logs

from workers.postgres.group_commit import GroupCommit, apply_in_halves


class Ledger:
    """Takes batches; an item in `poison` is refused by the database, and `outages` come before anything works."""

    def __init__(self, *, poison: Sequence[int] = (), outages: Sequence[Exception] = ()) -> None:
        self.poison = set(poison)
        self.outages = list(outages)
        self.batches: list[list[int]] = []
        self.committed: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def apply(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        await self.gate.wait()
        if self.outages:
            raise self.outages.pop(0)
        if self.poison & set(items):
            raise asyncpg.NumericValueOutOfRangeError("value out of range")
        self.committed += items
        return [item * 10 for item in items]


async def test_what_gathers_while_a_batch_is_in_flight_goes_in_the_next_one() -> None:
    ledger = Ledger()
    queue = GroupCommit("test", ledger.apply)
    ledger.gate.clear()

    first = [asyncio.create_task(queue.submit(n)) for n in range(3)]
    await asyncio.sleep(0.01)
    second = [asyncio.create_task(queue.submit(n)) for n in range(3, 9)]
    await asyncio.sleep(0.01)
    ledger.gate.set()

    assert await asyncio.gather(*first, *second) == [n * 10 for n in range(9)]
    assert ledger.batches == [[0, 1, 2], [3, 4, 5, 6, 7, 8]]


async def test_who_submits_again_at_once_is_never_forgotten() -> None:
    """The flusher that answered has taken its last look at the queue, and its task is not yet gone."""
    queue = GroupCommit("test", Ledger().apply)

    async def several() -> list[int]:
        return [await queue.submit(n) for n in range(50)]

    answers = list(await asyncio.wait_for(asyncio.gather(several(), several()), 5))

    assert answers == [[n * 10 for n in range(50)]] * 2


async def test_a_batch_is_no_larger_than_allowed_and_flushers_work_side_by_side() -> None:
    ledger = Ledger()
    queue = GroupCommit("test", ledger.apply, max_batch=4, flushers=2)
    ledger.gate.clear()

    tasks = [asyncio.create_task(queue.submit(n)) for n in range(12)]
    await asyncio.sleep(0.01)
    in_flight = len(ledger.batches)
    ledger.gate.set()
    await asyncio.gather(*tasks)

    assert in_flight == 2
    assert [len(batch) for batch in ledger.batches] == [4, 4, 4]


async def test_who_gave_up_waiting_costs_the_others_nothing() -> None:
    ledger = Ledger()
    queue = GroupCommit("test", ledger.apply)
    ledger.gate.clear()
    first = asyncio.create_task(queue.submit(0))
    await asyncio.sleep(0.01)
    gone, stays = asyncio.create_task(queue.submit(1)), asyncio.create_task(queue.submit(2))
    await asyncio.sleep(0.01)

    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    ledger.gate.set()

    assert list(await asyncio.gather(first, stays)) == [0, 20]
    assert ledger.committed == [0, 2]


@pytest.mark.rule("EN-14")
async def test_one_poison_item_among_500_is_refused_alone() -> None:
    ledger = Ledger(poison=[137])

    results = await apply_in_halves(range(500), ledger.apply, None)

    assert isinstance(results[137], asyncpg.DataError)
    assert [result for result in results if not isinstance(result, Exception)] == [
        n * 10 for n in range(500) if n != 137
    ]
    assert sorted(ledger.committed) == [n for n in range(500) if n != 137]
    assert len(ledger.batches) <= 1 + 2 * 9


@pytest.mark.rule("EN-14")
@pytest.mark.parametrize(
    "outage",
    [
        asyncpg.SerializationError("40001"),
        asyncpg.DeadlockDetectedError("40P01"),
        asyncpg.LockNotAvailableError("55P03"),
        asyncpg.ReadOnlySQLTransactionError("25006"),
        asyncpg.TooManyConnectionsError("53300"),
        asyncpg.DiskFullError("53100"),
        asyncpg.AdminShutdownError("57P01"),
        asyncpg.ConnectionDoesNotExistError("gone"),
        ConnectionResetError("reset"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_any_other_failure_tries_the_whole_batch_again(outage: Exception) -> None:
    ledger = Ledger(outages=[outage] * 3)

    results = await apply_in_halves(range(20), ledger.apply, None)

    assert results == [n * 10 for n in range(20)]
    assert ledger.batches == [list(range(20))] * 4


@pytest.mark.rule("EN-39")
async def test_a_long_outage_is_a_few_lines_in_the_log() -> None:
    ledger = Ledger(outages=[asyncpg.LockNotAvailableError("55P03")] * 5)

    with capture_logs() as lines:
        await apply_in_halves([1], ledger.apply, None)

    assert [(line["event"], line["tries"]) for line in lines] == [("batch.retrying", n) for n in (1, 2, 4)]


async def test_patience_bounds_an_outage_and_splits_nothing() -> None:
    ledger = Ledger(outages=[asyncpg.SerializationError("40001")] * 1000)

    results = await apply_in_halves(range(8), ledger.apply, timedelta(milliseconds=50))

    assert all(isinstance(result, asyncpg.SerializationError) for result in results)
    assert all(batch == list(range(8)) for batch in ledger.batches)
    assert ledger.committed == []


async def test_a_defect_of_ours_is_told_to_everyone_at_once() -> None:
    ledger = Ledger(outages=[asyncpg.UndefinedTableError("runs")])

    results = await apply_in_halves(range(8), ledger.apply, None)

    assert all(isinstance(result, asyncpg.UndefinedTableError) for result in results)
    assert len(ledger.batches) == 1


async def test_closing_waits_for_what_was_submitted_and_takes_no_more() -> None:
    ledger = Ledger()
    queue = GroupCommit("test", ledger.apply)
    task = asyncio.create_task(queue.submit(1))
    await asyncio.sleep(0)

    await queue.close()

    assert await task == 10
    with pytest.raises(RuntimeError):
        await queue.submit(2)
