"""The packages under test are those of this repository, and not namesakes from elsewhere."""

from importlib.metadata import distribution
from pathlib import Path

import pytest

import migrations
import schemas
import workers


def test_workers_schemas_and_migrations_are_imported_from_this_repository(
    pytestconfig: pytest.Config,
) -> None:
    imported = {Path(package.__file__ or "").parent for package in (workers, schemas, migrations)}

    assert imported == {pytestconfig.rootpath / name for name in ("workers", "schemas", "migrations")}


def test_the_installed_distribution_is_parley_with_one_command() -> None:
    parley = distribution("parley")

    assert parley.version == "0.1.0"
    assert {(entry.name, entry.value) for entry in parley.entry_points} == {("parley", "workers.cli:main")}
