"""`parley migrate`: bring the database to the schema of this version."""

from typing import Annotated

import typer

from workers.cli.edge import explained
from workers.cli.output import print_json, print_line
from workers.cli.usage import Json

To = Annotated[str, typer.Option("--to", help="A schema version, or head.")]


def migrate(to: To = "head", as_json: Json = False) -> None:
    """Create or upgrade the tables, once however many run this at the same time, and print the version."""
    with explained():
        version = _upgrade(to)
    if as_json:
        print_json({"version": version})
        return
    print_line(f"the database is at schema version {version}")


def _upgrade(to: str) -> str:
    import psycopg
    from alembic.util.exc import CommandError
    from sqlalchemy.exc import OperationalError

    from migrations import runner
    from schemas.errors import Misconfigured, Transient
    from workers.cli.connect import database_url

    url = database_url()
    try:
        return runner.upgrade(url, to)
    except CommandError as error:
        newest = runner.head()
        raise Misconfigured(
            f"cannot migrate to {to}: {error}; this version knows {newest} as newest"
        ) from None
    except (OperationalError, psycopg.OperationalError) as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise Transient(
            f"the database cannot be migrated: {reason}; check PARLEY_DATABASE_URL and the server"
        ) from None
