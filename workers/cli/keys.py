"""Signing keys that an operator gives to a command: a key file, or the channel's own from an app."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import Misconfigured

if TYPE_CHECKING:
    from schemas.signing import SigningKey


class NoKeys(Misconfigured):
    """The command was told of no key to sign with."""


def signing_keys(key_file: Path | None, target: str | None) -> "Callable[[str], Sequence[SigningKey]]":
    """Who signs for a channel: `key_file` where given, else the channel of the app `target`.

    A file with one bare key and nothing else may sign for whichever channel is asked. Raises NoKeys, KeyFileProblem,
    AppNotLoaded.
    """
    if key_file is not None:
        return _from_file(key_file)
    if target is None:
        raise NoKeys("there is no key to sign with: give --key-file FILE or --app MODULE:APP")
    return _from_app(target)


def _from_file(path: Path) -> "Callable[[str], Sequence[SigningKey]]":
    from schemas.keys import KeyFileProblem, parse_keys
    from schemas.signing import SigningKey

    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileProblem(path, 0, f"cannot be read: {type(error).__name__}") from None
    if len(words) == 1:
        bare = SigningKey.parse(path.name, words[0])
        return lambda channel: (bare,)

    def keys_of(channel: str) -> Sequence[SigningKey]:
        entries = parse_keys(path, path.read_text(encoding="utf-8"), channel)
        return [e.signing for e in entries if e.signing is not None and e.verify.channel == channel]

    parse_keys(
        path, path.read_text(encoding="utf-8"), ""
    )  # what is wrong in it is said before anything is done
    return keys_of


def _from_app(target: str) -> "Callable[[str], Sequence[SigningKey]]":
    from workers.cli.loading import load_app

    app = load_app(target)

    def keys_of(name: str) -> Sequence[SigningKey]:
        channel = app.channels.get(name)
        return channel.keys.signing_keys(name) if channel is not None and channel.keys is not None else ()

    return keys_of
