"""`parley demo` passes as it is, and fails the matching check for each part that is taken out."""

import asyncio
import re
import sys
from datetime import timedelta

import pytest

AT_MOST = timedelta(seconds=120)

MATCHING = {
    "dedupe": "one event posted three times is one run",
    "recover": "a worker killed in the middle of a turn loses no turn",
    "reconcile": "a reply whose connection dropped goes again under the same key",
    "recall": "the second message is answered from the note of the first",
}


async def demo(*options: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from workers.cli import main; main()",
        "demo",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), AT_MOST.total_seconds())
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    return process.returncode, said.decode()


def marks(said: str) -> dict[str, bool]:
    """Promise to whether it held, from the printed checks."""
    return {promise: mark == "✓" for mark, promise in re.findall(r"^  ([✓✗]) (.+?)\s*$", said, re.MULTILINE)}


@pytest.mark.rule("EN-32")
async def test_the_demo_holds_what_it_promises() -> None:
    code, said = await demo()

    assert code == 0, said
    assert len(marks(said)) == 8
    assert all(marks(said).values())


async def test_without_recall_the_demo_fails_the_check_of_recall() -> None:
    await _fails_the_check_of("recall")


@pytest.mark.long
@pytest.mark.parametrize("part", ["dedupe", "recover", "reconcile"])
async def test_without_a_part_the_demo_fails_its_check(part: str) -> None:
    await _fails_the_check_of(part)


async def _fails_the_check_of(part: str) -> None:
    code, said = await demo("--break", part)

    assert code == 1, said
    assert marks(said)[MATCHING[part]] is False
