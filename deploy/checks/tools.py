"""The programs that the checks run, and what to install where one is missing."""

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
KUBERNETES_VERSIONS: Final = ("1.29", "1.33", "1.37")
_PACKAGES: Final = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "java": "openjdk-17-jre-headless",
    "mvn": "maven",
    "flock": "util-linux",
}
_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document; `problems` are what the schemas of Kubernetes say of it, `validated` how many were asked."""

    file: str
    body: dict[str, Any]
    problems: tuple[str, ...] = ()
    validated: int = 0

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))

    @property
    def name(self) -> str:
        return str(self.body.get("metadata", {}).get("name", ""))

    @property
    def title(self) -> str:
        """How a person finds it."""
        return f"{self.file}: {self.kind} {self.name}"


class Failed(Exception):
    """A program said no; the text is what it said."""


def missing(tool: str) -> str | None:
    """What to do where a program is not there, or None."""
    if shutil.which(tool):
        return None
    return f"{tool} is missing: apt-get install --no-install-recommends {_PACKAGES[tool]}"


def run(command: Sequence[str | Path], cwd: Path = ROOT) -> str:
    """What a program prints; raises Failed with all that it said."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        raise Failed(f"{' '.join(words[:3])}: {(done.stdout + done.stderr).strip()}")
    return done.stdout


def read_yaml(files: Iterable[Path], versions: Sequence[str] = ()) -> list[Document]:
    """The documents of YAML files, checked by the schemas of these versions of Kubernetes. Raises Failed."""
    run([DEPLOY / "lint.sh", "environment"])
    reader = DEPLOY / "checks" / "read_yaml.py"
    said = run([DEPLOY / ".venv/bin/python", reader, ",".join(versions), *files])
    return [
        Document(each["file"], each["document"], tuple(each["problems"]), each["validated"])
        for each in json.loads(said)
    ]
