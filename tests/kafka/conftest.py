"""Settings for the brokers of the harness, and group members in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.topics import Topics
from workers.kafka import KafkaSettings


def settings_for(cluster: KafkaCluster, topics: Topics) -> KafkaSettings:
    """Quick group time-outs and a group of this test alone."""
    base = KafkaSettings.embedded(cluster.bootstrap).with_topics(
        events=topics.events, deliveries=topics.deliveries, dead=topics.dead
    )
    return replace(base, group_prefix=f"g{uuid.uuid4().hex[:8]}", commit_every=timedelta(milliseconds=200))


@pytest.fixture
def settings(kafka: KafkaCluster, topics: Topics) -> KafkaSettings:
    """The session's broker and the topics of this test."""
    return settings_for(kafka, topics)


class Member:
    """A consumer in its own process; what it reads it prints, and this collects."""

    def __init__(self, settings: KafkaSettings, topic: str, role: str, behaviour: str, output: Path) -> None:
        self._output = output
        arguments = [settings.bootstrap, settings.group_prefix, topic, role, behaviour]
        with output.open("wb") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kafka.member", *arguments],
                stdout=sink,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def said(self, kind: str) -> list[Any]:
        """Values of the lines `{"kind": value}` so far, oldest first."""
        lines = self._output.read_text("utf-8").splitlines(keepends=True)
        parsed = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line[kind] for line in parsed if kind in line]

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self._process.pid}/status").read_text("ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the member has ended")

    def kill(self) -> None:
        """kill -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """`spawn(settings, topic, role, behaviour)`; all are killed at the end."""
    members: list[Member] = []

    def start(settings: KafkaSettings, topic: str, role: str, behaviour: str) -> Member:
        members.append(Member(settings, topic, role, behaviour, tmp_path / f"member-{len(members)}"))
        return members[-1]

    yield start
    for member in members:
        member.close()
