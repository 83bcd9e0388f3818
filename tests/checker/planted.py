"""Planted faults: patches that break one promise on purpose, and copies of the tree that have one of them.

A patch file begins with what it breaks and under which fault that shows:

    Breaks: one-writer
    Fault: pause
    <why, in a few lines>
    --- a/workers/...
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(__file__).with_name("plants")
COPIED: Final = ("workers", "schemas", "migrations", "tests")


class DoesNotApply(Exception):
    """The patch does not fit the code any more; the text says where."""


@dataclass(frozen=True, slots=True)
class Plant:
    name: str
    breaks: str
    fault: str
    patch: Path

    def check(self) -> None:
        """Raises DoesNotApply."""
        _apply(self.patch, ROOT, "--check")

    def copy_into(self, folder: Path) -> Path:
        """Copy the tree into the new `folder` and plant the fault there. Raises DoesNotApply."""
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        _apply(self.patch, folder)
        return folder


def plants() -> dict[str, Plant]:
    """All of them by name."""
    return {patch.stem: _read(patch) for patch in sorted(FOLDER.glob("*.patch"))}


def _read(patch: Path) -> Plant:
    said = dict(line.split(": ", 1) for line in patch.read_text("utf-8").splitlines()[:2])
    return Plant(patch.stem, said["Breaks"], said["Fault"], patch)


def _apply(patch: Path, tree: Path, *options: str) -> None:
    # Outside of any repository git patches plain files; inside of one it would look for them in its index's tree.
    surroundings = os.environ | {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(
        ["git", "apply", *options, str(patch)],
        cwd=tree,
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DoesNotApply(f"{patch.name}: {done.stderr.strip()}")
