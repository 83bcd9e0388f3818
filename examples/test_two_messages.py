"""The story of two messages as `python -m examples.two_messages` plays it: two processes, one database."""

import subprocess
import sys
from pathlib import Path


def play(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.two_messages", *options],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_new_process_answers_from_what_the_first_one_kept() -> None:
    played = play()

    assert played.returncode == 0, played.stdout + played.stderr
    assert 'helper:    You told me: "I prefer short answers"' in played.stdout
    assert played.stdout.endswith("it holds\n")


def test_another_chat_knows_nothing_of_it() -> None:
    played = play("--elsewhere")

    assert played.returncode == 1, played.stdout + played.stderr
    assert "I was shown no notes and no earlier messages" in played.stdout
