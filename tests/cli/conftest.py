import os
import sys
from pathlib import Path

import pytest

from tests.cli.desk import Terminal


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """An empty directory to run commands in, with no setting and no module of another test."""
    for name in [name for name in os.environ if name.startswith("PARLEY_") and name != "PARLEY_KAFKA_DIR"]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *[path for path in sys.path if path]])
    for name in ("bots", "broken"):
        sys.modules.pop(name, None)
    return Terminal(tmp_path, {"PARLEY_OPERATOR": "ann"})
