"""The rename story as `python -m examples.rename` plays it, on services of its own."""

import pytest

from examples.rename import run


async def test_a_renamed_agent_with_a_stable_key_keeps_what_it_knows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await run()

    told = capsys.readouterr().out
    assert "support:   4 lines before, I like tea" in told
    assert "FAILED" not in told
