"""Old events in today's shape: pure functions from one version's JSON object to the next.

Each step only renames and reshapes. A field it cannot make sense of is handed on as it is, for the
validation of the newest version to name; a step never raises.

Version 0 had `user` and `user_name` in place of `principal` and `sender_name`, `ts` in epoch seconds in
place of `occurred_at`, `private` in place of `audience`, and no kinds other than a message.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from schemas.identity import DIRECT

CURRENT_VERSION: Final = 1

_V0_RENAMED = {"user_name": "sender_name", "files": "attachments"}
_V0_REPLACED = frozenset({"version", "user", "ts", "private"})


def upcast(document: dict[str, Any], version: int) -> dict[str, Any]:
    """`document` of a known old `version` in the shape of `CURRENT_VERSION`; the argument is left
    unchanged.
    """
    for step in _STEPS[version:]:
        document = step(document)
    return document


def _v0_to_v1(old: dict[str, Any]) -> dict[str, Any]:
    new = {_V0_RENAMED.get(name, name): value for name, value in old.items() if name not in _V0_REPLACED}
    new["version"] = 1
    new["kind"] = "message"
    if "user" in old:
        new["principal"] = {"id": old["user"], "claims": {}}
    if "ts" in old:
        new["occurred_at"] = _rfc3339(old["ts"])
    if isinstance(old.get("private"), bool):
        new["audience"] = DIRECT if old["private"] else "group"
    return new


def _rfc3339(epoch_seconds: Any) -> Any:
    if isinstance(epoch_seconds, bool) or not isinstance(epoch_seconds, int | float):
        return epoch_seconds
    try:
        return datetime.fromtimestamp(epoch_seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return epoch_seconds


_STEPS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_v0_to_v1,)
