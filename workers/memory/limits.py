"""The bounds of conversation memory: every one positive, whole and below its maximum, or the app does not start."""

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final

from schemas.errors import Misconfigured
from workers.memory.access import Authorize

MAXIMA: Final = {
    "max_items": 100,
    "max_history_bytes": 131_072,
    "max_notes_bytes": 32_768,
    "max_item_bytes": 65_536,
    "max_stored_items": 10_000,
}
MAX_RETENTION: Final = timedelta(days=365)

TRIM_EVERY: Final = 16
FEW_ITEMS: Final = 100

_MILLISECOND = timedelta(milliseconds=1)


class InvalidLimit(Misconfigured):
    """A limit that is not positive and whole, or lies above its maximum."""

    def __init__(self, limit: str, value: object, must_be: str) -> None:
        super().__init__(f"{limit} must be {must_be}; it is {value!r}")


class MissingPolicy(Misconfigured):
    """`Conversations` was given no `authorize` function."""

    def __init__(self) -> None:
        super().__init__("Conversations needs authorize, an async function of Access")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes are UTF-8 bytes; items are counted a conversation and generation. Raises InvalidLimit."""

    max_items: int = 20
    max_history_bytes: int = 32_768
    max_notes_bytes: int = 8_192
    max_item_bytes: int = 16_384
    retention: timedelta = timedelta(days=30)
    max_stored_items: int = 1_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "retention":
                whole = (
                    isinstance(value, timedelta)
                    and value > timedelta(0)
                    and value % _MILLISECOND == timedelta(0)
                )
                if not whole or value > MAX_RETENTION:
                    most = f"at most {MAX_RETENTION.days} days"
                    raise InvalidLimit(
                        "retention", value, f"a timedelta of whole milliseconds, positive and {most}"
                    )
            elif type(value) is not int or not 0 < value <= MAXIMA[field.name]:
                most = f"at most {MAXIMA[field.name]}"
                raise InvalidLimit(field.name, value, f"a positive whole number, {most}")

    def trims_at(self, turn: int) -> bool:
        """Whether the `turn`-th turn of a conversation trims its transcript.

        Every turn where few items are kept; else one turn in 16, so that what 15 turns add may stand beyond the bound.
        """
        return self.max_stored_items <= FEW_ITEMS or turn % TRIM_EVERY == 0


@dataclass(frozen=True, slots=True)
class Conversations:
    """The app's conversation memory: the policy that guards it, and its bounds. Raises MissingPolicy."""

    authorize: Authorize
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not callable(self.authorize):
            raise MissingPolicy
