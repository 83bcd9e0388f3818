"""The cases run on whole workers, as those of tests/worker do."""

from tests.worker.conftest import make_site, nursery, site

__all__ = ["make_site", "nursery", "site"]
