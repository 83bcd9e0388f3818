"""`module:attr` becomes the user's App, or one line a mistake; a failing import is named with its place."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path

from schemas.errors import Misconfigured
from workers.app import App, InvalidApp
from workers.telemetry.redact import redact_text


class AppNotLoaded(Misconfigured):
    """The App that a command names cannot be had; `problems` says why, one line each, without secrets."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load_app(target: str) -> App:
    """The App that `target`, `package.module:attr`, names; the current directory is importable. Raises AppNotLoaded."""
    module_name, colon, attribute = target.partition(":")
    if (
        not colon
        or not module_name
        or not attribute
        or not all(map(str.isidentifier, module_name.split(".")))
    ):
        raise AppNotLoaded(f"{target!r} does not name an app: write it as package.module:app")
    _make_directory_importable()
    module = _import(module_name)
    found: object = module
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if isinstance(found, App):
        return found
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, App))
    advice = (
        f"it has {', '.join(f'{module_name}:{name}' for name in apps)}" if apps else "it has no App at all"
    )
    what = (
        f"has no {attribute!r}"
        if found is None
        else f"has a {type(found).__name__}, not an App, in {attribute!r}"
    )
    raise AppNotLoaded(f"module {module_name} {what}: {advice}")


def _make_directory_importable() -> None:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def _import(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotLoaded(
                f"there is no module {error.name}: run the command where it can be imported from, or install it"
            ) from error
        raise AppNotLoaded(f"module {name} needs {error.name}, which is not installed") from error
    except InvalidApp as error:
        raise AppNotLoaded(*error.problems) from error
    except Misconfigured as error:
        raise AppNotLoaded(*str(error).splitlines()) from error
    except Exception as error:
        raise AppNotLoaded(_said(name, error)) from error


def _said(name: str, error: Exception) -> str:
    """One line: what the import raised, and where in the user's code."""
    reason = (redact_text(str(error)).splitlines() or [""])[0]
    if isinstance(error, SyntaxError):
        return f"module {name} cannot be read: {error.msg} at {error.filename}:{error.lineno}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"module {name} failed at import: {type(error).__name__}: {reason}{place}"
