"""The orchestrator's end of the receiver: how many arrived, and everything that did."""

import http.client
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Child
from benchmarks.receiver import HOST

ASK_EVERY_SECONDS = 0.2
_TEXT = re.compile(r"([bl]) (\d+) (\d+) (\d+)")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request at the receiver. `at` and `published` are monotonic nanoseconds of this machine."""

    at: int
    webhook_id: str
    phase: str
    conversation: int
    sequence: int
    published: int


class Receiver:
    """Talks to the receiver on `port`."""

    def __init__(self, port: int, folder: Path) -> None:
        self.url = f"http://{HOST}:{port}/replies"
        self._port = port
        self._file = folder / "arrivals.jsonl"

    def count(self) -> int:
        """Requests since the last dump."""
        return int(self._ask("GET", "/count"))

    def wait_for(self, count: int, stall_seconds: float, *children: Child) -> None:
        """Until `count` have arrived, or nothing has for `stall_seconds`; raises ChildEnded."""
        seen, moved = 0, time.monotonic()
        while seen < count and time.monotonic() - moved < stall_seconds:
            for running in children:
                running.check()
            time.sleep(ASK_EVERY_SECONDS)
            if (now := self.count()) != seen:
                seen, moved = now, time.monotonic()

    def take(self) -> list[Arrival]:
        """Everything since the last dump, in order of arrival."""
        self._ask("POST", "/dump", str(self._file))
        with self._file.open(encoding="utf-8") as lines:
            return [parse(json.loads(line)) for line in lines]

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=30)
        try:
            connection.request(method, path, body)
            return connection.getresponse().read()
        finally:
            connection.close()


def parse(noted: dict[str, str | int]) -> Arrival:
    """A line of the dump; the text says phase, conversation, sequence and when it was published."""
    text = json.loads(str(noted["body"]))["text"]
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"not a text of this benchmark: {text!r}")
    phase, conversation, sequence, published = found.groups()
    return Arrival(
        int(noted["at"]), str(noted["id"]), phase, int(conversation), int(sequence), int(published)
    )
