"""`parley check`: everything that can be known to be wrong before a worker starts; it changes nothing."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from workers.cli.edge import FAILED, run
from workers.cli.output import print_json, print_line, printable
from workers.cli.usage import Json

if TYPE_CHECKING:
    from workers.app import App
    from workers.roles.settings import Settings

_OTHERWISE_CHECKED: Final = ("PARLEY_KAFKA_CA_FILE", "PARLEY_OPERATOR_TOKENS_FILE")

Target = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as package.module:name.")
]


@dataclass(slots=True)
class Findings:
    """What is wrong, one line each: errors stop a worker or lose something, warnings do not."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check(
    target: Target,
    offline: bool = typer.Option(
        False, "--offline", help="Only settings and app; ask neither database nor Kafka."
    ),
    as_json: Json = False,
) -> None:
    """Name each mistake in settings, app, key files, database and Kafka in one line; change nothing."""
    findings = run(_check(target, offline))
    if as_json:
        print_json({"ok": not findings.errors, "errors": findings.errors, "warnings": findings.warnings})
    else:
        for line in findings.errors:
            sys.stderr.write(f"error: {printable(line)}\n")
        for line in findings.warnings:
            sys.stderr.write(f"warning: {printable(line)}\n")
        if not findings.errors:
            print_line("checked: settings and app only" if offline else "checked: nothing stands in the way")
    if findings.errors:
        raise typer.Exit(FAILED)


async def _check(target: str, offline: bool) -> Findings:
    from workers.cli import preflight

    findings = Findings()
    settings = _read_settings(findings)
    app = _load(target, findings)
    findings.warnings += preflight.file_warnings(_secret_files())
    if settings is not None:
        preflight.check_operators(settings.operator_tokens_file, findings)
    if app is not None:
        preflight.check_app(app, settings, findings)
    if not offline:
        if settings is not None:
            await preflight.check_database(settings.database_url, app, findings)
            await preflight.check_kafka(settings, findings)
        else:
            findings.warnings.append("database and Kafka were not asked: mend the settings first")
    return findings


def _read_settings(findings: Findings) -> "Settings | None":
    from workers.cli.edge import lines_of
    from workers.roles.settings import InvalidSettings, read_settings

    try:
        return read_settings()
    except InvalidSettings as invalid:
        findings.errors += lines_of(invalid)
        return None


def _load(target: str, findings: Findings) -> "App | None":
    from workers.cli.edge import lines_of
    from workers.cli.loading import AppNotLoaded, load_app

    try:
        return load_app(target)
    except AppNotLoaded as problem:
        findings.errors += lines_of(problem)
        return None


def _secret_files() -> list[Path]:
    import os

    return [
        Path(path)
        for name, path in sorted(os.environ.items())
        if name.startswith("PARLEY_") and name.endswith("_FILE") and name not in _OTHERWISE_CHECKED and path
    ]
