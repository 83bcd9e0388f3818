"""A sender killed at any point loses no reply silently, and sends none twice where the channel can tell."""

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.delivery.crashing_sender import FileLedger, a_channel
from tests.support.delivery import a_desk
from workers.channels.port import Capability
from workers.postgres.database import Database

SEND_POINTS = [
    "claim written",
    "claim committed",
    "before request",
    "accepted, not answered",
    "sent",
    "receipt written",
    "receipt committed",
]
QUIET = timedelta(seconds=21)


async def killed_sender(url: str, ledger: Path, capability: Capability, point: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.delivery.crashing_sender",
        url,
        str(ledger),
        capability,
        point,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == -signal.SIGKILL


async def take_over(url: str) -> None:
    """What the takeover of the session lease does in a worker."""
    db = await Database.open(url)
    await db.execute("update worker_sessions set dead_at = now() where dead_at is null")
    await db.close()


async def finish(url: str, ledger: Path, capability: Capability) -> list[str]:
    """Another worker goes on until nothing is open; returns the final states in order."""
    await take_over(url)
    async with a_desk(url, a_channel(ledger, capability)) as desk:
        for _ in range(4):
            await desk.send()
            await desk.reconciler.run_once()
            await desk.pass_time(QUIET)
        return await desk.states()


@pytest.mark.rule("EN-35")
@pytest.mark.parametrize("capability", list(Capability))
@pytest.mark.parametrize("point", SEND_POINTS)
async def test_killed_between_claim_and_receipt(
    database_url: str, tmp_path: Path, capability: Capability, point: str
) -> None:
    ledger = tmp_path / "ledger"
    async with a_desk(database_url) as desk:
        await desk.reply("one", "two", address="x")
        await desk.reply("other", address="y")
    await killed_sender(database_url, ledger, capability, point)

    states = await finish(database_url, ledger, capability)

    messages = FileLedger(ledger).messages()
    texts = sorted(message.text for message in messages)
    assert len({message.key for message in messages}) == len(messages)
    match capability:
        case Capability.IDEMPOTENT | Capability.IDEMPOTENT_WINDOW | Capability.LOOK_UP_DEFINITE:
            assert states == ["sent"] * 3
            assert texts == ["one", "other", "two"]
        case Capability.LOOK_UP_POSITIVE | Capability.NONE:
            assert set(states) <= {"sent", "unknown"}
            unknown = states.count("unknown")
            assert len(texts) >= 3 - unknown
            assert unknown == 0 or point != "claim written"
    chat = [message.text for message in messages if message.address == "x"]
    assert chat == sorted(chat)


@pytest.mark.rule("EN-35")
@pytest.mark.parametrize(
    ("capability", "point"),
    [
        (Capability.IDEMPOTENT, "uncertain leased"),
        (Capability.IDEMPOTENT, "receipt written"),
        (Capability.LOOK_UP_DEFINITE, "uncertain leased"),
        (Capability.LOOK_UP_DEFINITE, "asked"),
        (Capability.LOOK_UP_DEFINITE, "receipt committed"),
    ],
)
async def test_the_reconciler_killed_in_its_turn(
    database_url: str, tmp_path: Path, capability: Capability, point: str
) -> None:
    ledger = tmp_path / "ledger"
    async with a_desk(database_url) as desk:
        await desk.reply("one", "two", address="x")
    await killed_sender(database_url, ledger, capability, "accepted, not answered")
    await take_over(database_url)
    async with a_desk(database_url) as desk:
        await desk.reconciler.take_from_the_dead()
    await killed_sender(database_url, ledger, capability, point)

    states = await finish(database_url, ledger, capability)

    assert states == ["sent", "sent"]
    assert [message.text for message in FileLedger(ledger).messages()] == ["one", "two"]
