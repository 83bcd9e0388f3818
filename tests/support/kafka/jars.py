"""The jars of a broker, fetched once by Maven into a cache; says plainly what is missing to get them."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
REPOSITORY = Path(__file__).parents[3]
FETCH_SECONDS = 150


class KafkaUnavailable(Exception):
    """This machine cannot run a broker; the text says what to install."""


def cache_folder() -> Path:
    """`$PARLEY_KAFKA_DIR`, else `.kafka/` at the root of the repository."""
    return Path(os.environ.get("PARLEY_KAFKA_DIR") or REPOSITORY / ".kafka")


def jars_folder() -> Path:
    """Where the jars of this pom stand or will stand; another pom gets another folder."""
    return cache_folder() / f"jars-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def java() -> Path | None:
    """The java command: that of `$JAVA_HOME`, else the first on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    return Path(found) if found else None


def what_is_missing() -> str | None:
    """Why no broker can run here, or None; looks only, fetches nothing."""
    if java() is None:
        return "no Java (Debian: openjdk-17-jre-headless)"
    if not jars_folder().exists() and shutil.which("mvn") is None:
        return "no Maven to fetch the broker with (Debian: maven)"
    return None


def fetch_jars() -> Path:
    """The folder of the jars, fetched first if it is not there; processes that ask together fetch once."""
    target = jars_folder()
    if target.exists():
        return target
    if missing := what_is_missing():
        raise KafkaUnavailable(missing)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "fetching.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _fetch_into(target)
    return target


def _fetch_into(target: Path) -> None:
    """A fetch that breaks off leaves no folder under the final name."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as unfinished:
        jars = Path(unfinished) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise KafkaUnavailable(f"Maven did not fetch the broker in {FETCH_SECONDS} s") from error
        if done.returncode:
            raise KafkaUnavailable(f"Maven could not fetch the broker: {(done.stdout + done.stderr)[-2000:]}")
        jars.rename(target)
