"""Migrations are plain SQL files in `sql/`; this runs one inside the migration's transaction."""

from pathlib import Path

from alembic import op


def run_script(name: str) -> None:
    """Run `sql/<name>.sql` as one multi-statement script; no parameters, no string building."""
    script = (Path(__file__).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    driver = op.get_bind().connection.driver_connection
    assert driver is not None
    driver.execute(script)
