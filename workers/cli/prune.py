"""`parley prune`: remove now what retention lets go, or count it."""

import typer

from workers.cli.edge import run
from workers.cli.output import print_json, print_table
from workers.cli.usage import Json


def prune(
    dry_run: bool = typer.Option(False, "--dry-run", help="Only count what would go."),
    as_json: Json = False,
) -> None:
    """Remove rows whose retention has ended (PARLEY_KEEP_*), as the sweeper role does; what is open stays. Audited."""
    run(_prune(dry_run, as_json))


async def _prune(dry_run: bool, as_json: bool) -> None:
    from workers.cli.connect import all_settings, open_database, operator
    from workers.operations import audit
    from workers.operations.retention import SETTINGS
    from workers.operations.sweeper import Sweeper

    settings = all_settings()
    async with open_database(settings.database_url) as database:
        counts = await Sweeper(database, settings.retention).prune(dry_run=dry_run)
        if not dry_run:
            async with database.transaction() as tx:
                await audit.record(tx, operator(), "prune", "all tables", counts)
    found = {table: counts.get(table, 0) for table in SETTINGS}
    if as_json:
        print_json({"dry_run": dry_run, "rows": found})
        return
    print_table(
        ("table", "would go" if dry_run else "removed", "by"),
        [(table, rows, SETTINGS[table]) for table, rows in found.items()],
        "",
    )
