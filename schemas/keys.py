"""Signing keys from files, re-read when they change, each bound to one channel.

A line is `key-id KEY [channel=NAME] [account=NAME]`, with KEY as `whsec_`, `whpk_` or `whsk_`; `#` starts
a comment line; names are percent-escaped where they hold spaces. A line without `channel=` belongs to the
file's own channel. A broken edit, a vanished file and an empty one (an editor caught between truncating
and writing) keep the last good keys and are reported; a file that holds a comment and no key revokes them
all.
"""

import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from schemas.errors import Misconfigured
from schemas.signing import MalformedKey, SigningKey, VerifyKey
from schemas.watched import WatchedFile


class KeyFileProblem(Misconfigured):
    """A key file cannot be used; `line` is 0 when the whole file is meant. Never holds a key."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One line of a key file; `signing` is None for a public key."""

    verify: VerifyKey
    signing: SigningKey | None


def parse_keys(path: Path, text: str, channel: str | None = None) -> list[KeyEntry]:
    """The entries in the `text` of the key file at `path`. Raises KeyFileProblem for the first bad line."""
    entries: dict[str, KeyEntry] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            entry = _entry(words, channel)
        except MalformedKey as error:
            raise KeyFileProblem(path, number, str(error)) from None
        if entry.verify.id in entries:
            raise KeyFileProblem(path, number, f"key id {entry.verify.id} is used twice")
        entries[entry.verify.id] = entry
    return list(entries.values())


def readable_by_others(path: Path) -> bool:
    """Whether the file's mode lets anyone but its owner and group read it."""
    return bool(path.stat().st_mode & stat.S_IROTH)


@dataclass(slots=True)
class KeyFile:
    """The keys in one file, current within a second of `clock` (monotonic seconds); no task, no
    thread.

    The first read happens in the constructor and raises KeyFileProblem; later problems go to `on_problem`,
    once each time the file changes.
    """

    path: Path
    channel: str | None = None
    clock: Callable[[], float] = time.monotonic
    on_problem: Callable[[KeyFileProblem], None] = lambda problem: None
    _watched: WatchedFile = field(init=False, repr=False)
    _verify: dict[str, tuple[VerifyKey, ...]] = field(init=False, repr=False)
    _signing: dict[str, tuple[SigningKey, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._watched = WatchedFile(self.path, self.clock)
        self._use(self._read())

    def verify_keys(self, channel: str) -> tuple[VerifyKey, ...]:
        """The keys that may prove an event of `channel`, in file order."""
        self._refresh()
        return self._verify.get(channel, ())

    def signing_keys(self, channel: str) -> tuple[SigningKey, ...]:
        """The keys that may sign for `channel`, in file order."""
        self._refresh()
        return self._signing.get(channel, ())

    def _refresh(self) -> None:
        if not self._watched.changed():
            return
        try:
            self._use(self._read())
        except KeyFileProblem as problem:
            self.on_problem(problem)

    def _read(self) -> list[KeyEntry]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise KeyFileProblem(self.path, 0, error.strerror or "cannot be read") from None
        except UnicodeDecodeError:
            raise KeyFileProblem(self.path, 0, "is not UTF-8") from None
        if not text.strip():
            raise KeyFileProblem(self.path, 0, "is empty")
        return parse_keys(self.path, text, self.channel)

    def _use(self, entries: list[KeyEntry]) -> None:
        verify: dict[str, tuple[VerifyKey, ...]] = {}
        signing: dict[str, tuple[SigningKey, ...]] = {}
        for entry in entries:
            channel = entry.verify.channel
            verify[channel] = (*verify.get(channel, ()), entry.verify)
            if entry.signing is not None:
                signing[channel] = (*signing.get(channel, ()), entry.signing)
        self._verify, self._signing = verify, signing


def _entry(words: list[str], channel: str | None) -> KeyEntry:
    if len(words) < 2:
        raise MalformedKey("a line is: key-id key [channel=NAME] [account=NAME]")
    key_id, key, *options = words
    scope: dict[str, str] = {}
    for option in options:
        name, equals, content = option.partition("=")
        if name not in ("channel", "account") or not equals or not content or name in scope:
            raise MalformedKey("only channel=NAME and account=NAME may follow the key, once each")
        scope[name] = unquote(content)
    bound_to = scope.get("channel", channel)
    if bound_to is None:
        raise MalformedKey("the key names no channel, and the file has none of its own")
    verify = VerifyKey.parse(key_id, key, bound_to, scope.get("account"))
    return KeyEntry(verify, None if key.startswith("whpk_") else SigningKey.parse(key_id, key))
