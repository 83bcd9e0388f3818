"""A small run of the whole benchmark, on a broker of its own."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.kafka.jars import what_is_missing

RUN_SECONDS = 150


@pytest.mark.kafka
@pytest.mark.timeout(RUN_SECONDS + 30)
def test_a_small_run_says_one_line_and_loses_nothing() -> None:
    if (missing := what_is_missing()) and os.environ.get("REQUIRE_KAFKA", "") in ("", "0"):
        pytest.skip(f"no broker: {missing}")

    ended = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", "--goal", "main", "--runs", "1"),
            *("--events", "200", "--conversations", "20", "--paced", "20"),
        ],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    [line] = ended.stdout.splitlines()
    found = json.loads(line)
    assert (found["duplicates"], found["lost"], found["order_violations"]) == (0, 0, 0)
    assert found["turns_per_s"] > 0
    assert found["statements_per_turn"] > found["commits_per_turn"] > 0
    assert found["bare_turns_per_s"] > 0
    assert found["p99_ms"] >= found["p50_ms"] > 0
