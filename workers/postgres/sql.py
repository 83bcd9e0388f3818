"""SQL statements live one a file beside the code that runs them; this reads them once."""

from functools import cache
from importlib.resources import files


@cache
def load(package: str, name: str) -> str:
    """The text of `<package>/sql/<name>.sql`; raises FileNotFoundError where there is none."""
    return (files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
