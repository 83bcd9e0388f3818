"""The version before the newest expand migrations, as a wheel in an environment of its own.

The wheel was built from the last commit whose schema is 0001, with `pip wheel --no-deps`; `old.sha256` is its digest.
Its environment holds the wheel and a path to the libraries of the present one, whose own parley it does not see.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SCHEMA = "0001"
MAIN = "from workers.cli import main; main()"


def the_wheel() -> Path:
    """The old version. Raises AssertionError where it is not the one that was kept."""
    digest, name = (HERE / "old.sha256").read_text("utf-8").split()
    wheel = HERE / name
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == digest
    return wheel


def make_environment(folder: Path) -> Path:
    """Lay the old version out under `folder`; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    with zipfile.ZipFile(the_wheel()) as wheel:
        wheel.extractall(site)
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    return folder / "bin" / "python"


@dataclass(slots=True)
class Served:
    """A `parley serve` of one version."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        if self.alive:
            self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")


def serve(name: str, python: Path | None, folder: Path, environment: dict[str, str], roles: str) -> Served:
    """Run `bots:app` of `folder`, by the old version's interpreter or, for None, by the present version."""
    log = folder / f"{name}.log"
    path = [] if python is not None else [str(HERE.parents[1])]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(python or sys.executable), "-c", MAIN, "serve", "bots:app", "--roles", roles, "--port", "0"],
            cwd=folder,
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": os.pathsep.join([str(folder), *path]),
                "NAME": name,
            },
            stdout=output,
            stderr=output,
        )
    return Served(name, process, log)
